//! Load generator and comparisons with stock git. For benches and tests only.

pub mod cgi;
pub mod compare;
pub mod process;
