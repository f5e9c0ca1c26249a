//! The least HTTP/1.1 client a load needs: one kept-alive connection, one request at a time, answers read in full.
//!
//! A general client costs as much as the server under test; this one costs two system calls a request.

mod connection;
mod target;

pub(crate) use connection::{Connection, Sink};
pub(crate) use target::Target;
