//! Upload: serving a fetch or clone out of a view.
//!
//! [`Negotiation`] finds what both sides have, [`plan`] turns wants and common commits into the exact set of entries to
//! send (so that the pack's count is known before its first byte), and [`Plan::stream`] copies them out of the layers.
//! [`answer`] does the same for servers: who asks what others ask shares their pack, or is given one that was kept.
//! Nothing here knows the wire: wants and haves come parsed, the pack goes out as chunks of bytes.

mod answers;
mod bases;
mod filter;
mod negotiation;
mod offload;
mod plan;
mod policy;
mod reach;
mod rebuild;
mod request;
mod select;
mod shallow;
mod sparse;
mod stream;
mod trees;
mod units;
mod writer;

pub(crate) use answers::Answers;
pub use answers::{Answer, AnswerCounters, answer};
pub use filter::ObjectFilter;
pub use negotiation::Negotiation;
pub use offload::Offload;
pub use plan::{Plan, plan};
pub use policy::{Shown, WantPolicy, may_have, refused_want, shown_to};
pub use reach::Reach;
pub use request::UploadRequest;
pub use shallow::{Boundary, Deepen, boundary};
pub use stream::{PackStream, Progress};
