//! The client's half: what it takes to read from another server and to push to one.
//!
//! Requests are the values that the server's half parses ([`Fetch`](crate::upload::v2::Fetch),
//! [`PushRequest`](crate::receive::PushRequest)); answers come packet by packet through parsers that bound what a
//! hostile server can make them keep. Ref names are not checked: make [`RefName`](cuesta_git::RefName)s of them before
//! use.

mod advertisement;
mod fetch;
mod ls_refs;
mod push;

use cuesta_git::{ObjectFormat, ObjectId};

use crate::ProtocolError;
use crate::error::quote;

pub use advertisement::{Advertisement, AdvertisementParser, RefAdvertisement, RemoteRef, ServerCapabilities};
pub use fetch::{FetchAnswerParser, FetchEvent, write_fetch};
pub use ls_refs::{LsRefsParser, LsRefsRequest, write_ls_refs};
pub use push::{PushAnswerParser, PushEvent, write_push};

/// An id in hex at the start of `line`, and what follows one space.
fn split_oid(line: &[u8], format: ObjectFormat) -> Option<(ObjectId, &[u8])> {
    let (hex, rest) = line.split_at_checked(format.hex_width())?;
    let oid = ObjectId::from_hex(format, hex).ok()?;
    Some((oid, rest.strip_prefix(b" ")?))
}

/// The error in an `ERR` packet, if the line is one.
fn refusal(line: &[u8]) -> Result<(), ProtocolError> {
    match line.strip_prefix(b"ERR ") {
        Some(text) => Err(ProtocolError::Remote(quote(text))),
        None => Ok(()),
    }
}

fn unexpected(what: &str, line: &[u8]) -> ProtocolError {
    ProtocolError::malformed(what, line)
}
