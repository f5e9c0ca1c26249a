//! Load generator and comparisons with stock git. For benches and tests only.

pub mod cgi;
pub mod cold;
pub mod compare;
mod http;
pub mod large_tree;
pub mod load;
pub mod process;
pub mod slow_link;
pub mod stub;
pub mod together;

/// The time, as benches tell it.
// Nothing here is simulated.
#[allow(clippy::disallowed_methods)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
