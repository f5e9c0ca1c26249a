//! The services of a repository: here the wire's requests become the engine's calls, and its answers bytes.

mod admission;
pub mod advertise;
pub mod archive;
pub(crate) mod conversation;
pub mod dumb;
pub mod fetch;
pub mod input;
pub mod ls_refs;
pub mod negotiate;
pub mod object_info;
pub mod pack_answer;
mod patience;
pub mod payload;
pub mod payload_uris;
pub mod push;
mod push_answer;
pub mod push_cert;
mod push_engine;
pub mod push_signature;
pub mod repository_options;
pub mod request_memory;
pub mod shown_refs;
pub mod stateful_fetch;
mod unstoppable;

pub use admission::PushMemory;
