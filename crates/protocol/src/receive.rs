//! The server's half of a push: commands parsed, the report written (git: receive-pack).

mod certificate;
mod command;
mod report;
mod request;

pub use certificate::Certificate;
pub use command::{Command, FUNNY_REFNAME};
pub use report::{RefOutcome, RefReport, RefStatus, Report};
pub use request::{Event, PushCapabilities, PushRequest, ReportVersion, RequestParser};
