//! Git over `git://`, as git-daemon serves it: what everyone may read, to anyone, over a bare connection that is neither
//! encrypted nor authenticated (gitprotocol-pack, `Git Transport`). There are no pushes.
//!
//! One packet names a program and a path; from there on it is the conversation that SSH has, too
//! (`crate::service::conversation`).

mod addresses;
mod connection;
pub mod listener;
