//! HTTP over hyper: from a connection's bytes to a service's answer and one log line.

pub mod admission;
pub mod answer;
pub mod front;
pub mod listener;
mod opening;
pub mod peer;
pub mod range;
pub mod record;
pub mod request_body;
pub mod response_body;
pub mod route;
pub mod stall_guard;
