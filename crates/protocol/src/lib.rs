//! The Git wire protocol, sans-I/O: bytes in, values out; values in, bytes out.

pub mod advertise;
pub mod capability;
pub mod client;
mod error;
pub mod filter;
mod limits;
pub mod options;
pub mod pktline;
pub mod receive;
pub mod sideband;
pub mod upload;
mod version;

pub use error::{ErrorKind, ProtocolError};
pub use limits::Limits;
pub use version::{Service, Version};
