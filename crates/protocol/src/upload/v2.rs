//! v2 requests: `command=`, capabilities, delim, arguments, flush (gitprotocol-v2).

mod fetch;

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::ls_refs::{LsRefs, LsRefsParser};
use crate::capability::split_value;
use crate::error::{quote, within};
use crate::options::UploadOptions;
use crate::pktline::{self, Packet};
use crate::{Limits, ProtocolError};

use fetch::FetchParser;
pub use fetch::{Fetch, FetchStep};

/// A whole v2 request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// What the client says of itself and of this request.
    pub client: ClientInfo,
}

/// The capabilities a client sent with a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientInfo {
    /// The `agent` value, as it came.
    pub agent: Option<Bytes>,
    /// The `session-id` value, as it came.
    pub session_id: Option<Bytes>,
    /// The `server-option` values, in order.
    pub server_options: Vec<Bytes>,
    /// The names of the promisor remotes that the client takes objects from.
    pub promisor_remote: Option<Bytes>,
}

/// The commands, with their arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Show refs.
    LsRefs(LsRefs),
    /// Negotiate, and send a pack.
    Fetch(Box<Fetch>),
    /// Tell the sizes of objects.
    ObjectInfo(ObjectInfo),
    /// Name bundles to start from.
    BundleUri,
}

/// The arguments of `object-info`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInfo {
    /// Whether sizes are asked for; nothing else can be.
    pub size: bool,
    /// The objects, in order; git answers one as often as it was named.
    pub oids: Vec<ObjectId>,
}

/// What a packet completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    More,
    /// A request. The parser stands ready for another one.
    Request(Box<Request>),
    /// The client is done: a flush without a request. Stateless clients never send it.
    End,
}

/// Parses v2 requests packet by packet, refusing whatever `options` does not offer.
///
/// After an error the connection is lost: write [`refuse`](Self::refuse) and end it.
#[derive(Debug)]
pub struct RequestParser {
    format: ObjectFormat,
    options: UploadOptions,
    limits: Limits,
    size: usize,
    sideband_all: bool,
    state: State,
}

#[derive(Debug, Default)]
struct Keys {
    command: Option<CommandName>,
    format: ObjectFormat,
    client: ClientInfo,
    seen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandName {
    LsRefs,
    Fetch,
    ObjectInfo,
    BundleUri,
}

#[derive(Debug)]
enum State {
    Keys(Keys),
    Arguments(ClientInfo, Arguments),
}

#[derive(Debug)]
enum Arguments {
    LsRefs(LsRefsParser),
    Fetch(Box<FetchParser>),
    ObjectInfo(ObjectInfo),
    BundleUri,
}

impl RequestParser {
    /// A parser of requests to a repository of that format.
    pub fn new(format: ObjectFormat, options: UploadOptions, limits: Limits) -> Self {
        Self {
            format,
            options,
            limits,
            size: 0,
            sideband_all: false,
            state: State::Keys(Keys::default()),
        }
    }

    /// Takes the next packet.
    pub fn handle(&mut self, packet: &Packet) -> Result<Event, ProtocolError> {
        if self.size == 0 {
            self.sideband_all = false;
        }
        self.size = self.size.saturating_add(packet.wire_size());
        within(self.size, self.limits.request_bytes_max, "bytes in a request")?;
        match packet {
            Packet::Data(data) => self.line(pktline::text(data)).map(|()| Event::More),
            Packet::Delim => self.delim().map(|()| Event::More),
            Packet::Flush => self.flush(),
            Packet::ResponseEnd => Err(ProtocolError::Malformed("unexpected response end packet".to_owned())),
        }
    }

    /// Says that the stream has ended: legal only between requests.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if self.size == 0 {
            Ok(())
        } else {
            Err(ProtocolError::Truncated)
        }
    }

    /// Appends what tells the client of an error of this parser, or that the server refuses the request it gave last,
    /// in place of an answer: an `ERR` packet, or the same on band 3 if `sideband-all` was asked for.
    pub fn refuse(&self, out: &mut Vec<u8>, error: &ProtocolError) {
        let answer = super::answer::FetchAnswer {
            sideband_all: self.sideband_all,
        };
        answer.error(out, &error.to_string());
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        match &mut self.state {
            State::Keys(keys) => keys.take(line, &self.options, &self.limits),
            State::Arguments(_, arguments) => {
                arguments.take(line, self.format, &self.options, &self.limits)?;
                self.sideband_all = matches!(arguments, Arguments::Fetch(fetch) if fetch.sideband_all());
                Ok(())
            }
        }
    }

    fn delim(&mut self) -> Result<(), ProtocolError> {
        let state = std::mem::replace(&mut self.state, State::Keys(Keys::default()));
        match state {
            State::Keys(keys) => {
                let (client, arguments) = keys.finish(self.format)?;
                self.state = State::Arguments(client, arguments);
                Ok(())
            }
            State::Arguments(_, arguments) => Err(ProtocolError::Malformed(arguments.expected_flush().to_owned())),
        }
    }

    fn flush(&mut self) -> Result<Event, ProtocolError> {
        let state = std::mem::replace(&mut self.state, State::Keys(Keys::default()));
        let (client, arguments) = match state {
            State::Keys(keys) if !keys.seen => {
                self.size = 0;
                return Ok(Event::End);
            }
            State::Keys(keys) => keys.finish(self.format)?,
            State::Arguments(client, arguments) => (client, arguments),
        };
        let command = arguments.finish()?;
        self.size = 0;
        Ok(Event::Request(Box::new(Request { command, client })))
    }
}

impl Keys {
    fn take(&mut self, line: &[u8], options: &UploadOptions, limits: &Limits) -> Result<(), ProtocolError> {
        self.seen = true;
        if let Some(name) = line.strip_prefix(b"command=") {
            return self.take_command(name, options);
        }
        let (name, value) = split_value(line);
        let text = Bytes::copy_from_slice(value.unwrap_or_default());
        match name {
            b"agent" => self.client.agent = Some(text),
            b"server-option" => {
                self.client.server_options.push(text);
                within(
                    self.client.server_options.len(),
                    limits.server_options_max,
                    "server options",
                )?;
            }
            b"object-format" => self.format = object_format(value)?,
            b"session-id" if options.session_id.is_some() => self.client.session_id = Some(text),
            b"promisor-remote" if options.promisor_remote.is_some() => self.client.promisor_remote = Some(text),
            _ => return Err(ProtocolError::refused("unknown capability ", line)),
        }
        Ok(())
    }

    fn take_command(&mut self, name: &[u8], options: &UploadOptions) -> Result<(), ProtocolError> {
        if let Some(earlier) = self.command {
            let text = format!(
                "command '{}' requested after already requesting command '{}'",
                quote(name),
                earlier.as_str()
            );
            return Err(ProtocolError::Malformed(text));
        }
        let command = match name {
            b"ls-refs" => CommandName::LsRefs,
            b"fetch" => CommandName::Fetch,
            b"object-info" if options.object_info => CommandName::ObjectInfo,
            b"bundle-uri" if options.bundle_uri => CommandName::BundleUri,
            _ => return Err(ProtocolError::refused("invalid command ", name)),
        };
        self.command = Some(command);
        Ok(())
    }

    fn finish(self, format: ObjectFormat) -> Result<(ClientInfo, Arguments), ProtocolError> {
        let command = self
            .command
            .ok_or_else(|| ProtocolError::Malformed("no command requested".to_owned()))?;
        if self.format != format {
            let text = format!("mismatched object format: server {format}; client {}", self.format);
            return Err(ProtocolError::Refused(text));
        }
        let arguments = match command {
            CommandName::LsRefs => Arguments::LsRefs(LsRefsParser::default()),
            CommandName::Fetch => Arguments::Fetch(Box::default()),
            CommandName::ObjectInfo => Arguments::ObjectInfo(ObjectInfo::default()),
            CommandName::BundleUri => Arguments::BundleUri,
        };
        Ok((self.client, arguments))
    }
}

fn object_format(value: Option<&[u8]>) -> Result<ObjectFormat, ProtocolError> {
    let missing = || ProtocolError::Malformed("object-format capability requires an argument".to_owned());
    let name = value.ok_or_else(missing)?;
    let known = std::str::from_utf8(name).ok().and_then(ObjectFormat::from_name);
    known.ok_or_else(|| ProtocolError::refused("unknown object format ", name))
}

impl CommandName {
    const fn as_str(self) -> &'static str {
        match self {
            Self::LsRefs => "ls-refs",
            Self::Fetch => "fetch",
            Self::ObjectInfo => "object-info",
            Self::BundleUri => "bundle-uri",
        }
    }
}

impl Arguments {
    fn take(
        &mut self,
        line: &[u8],
        format: ObjectFormat,
        options: &UploadOptions,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        match self {
            Self::LsRefs(ls_refs) => ls_refs.take(line, options.unborn, limits),
            Self::Fetch(fetch) => fetch.take(line, format, options, limits),
            Self::ObjectInfo(info) => info.take(line, format, limits),
            Self::BundleUri => Err(ProtocolError::malformed("bundle-uri: unexpected argument: ", line)),
        }
    }

    fn finish(self) -> Result<Command, ProtocolError> {
        Ok(match self {
            Self::LsRefs(ls_refs) => Command::LsRefs(ls_refs.finish()),
            Self::Fetch(fetch) => Command::Fetch(Box::new(fetch.finish()?)),
            Self::ObjectInfo(info) => Command::ObjectInfo(info),
            Self::BundleUri => Command::BundleUri,
        })
    }

    const fn expected_flush(&self) -> &'static str {
        match self {
            Self::LsRefs(_) => "expected flush after ls-refs arguments",
            Self::Fetch(_) => "expected flush after fetch arguments",
            Self::ObjectInfo(_) => "object-info: expected flush after arguments",
            Self::BundleUri => "bundle-uri: expected flush after arguments",
        }
    }
}

impl ObjectInfo {
    fn take(&mut self, line: &[u8], format: ObjectFormat, limits: &Limits) -> Result<(), ProtocolError> {
        if line == b"size" {
            self.size = true;
            return Ok(());
        }
        let unexpected = || ProtocolError::malformed("object-info: unexpected line: ", line);
        let hex = line.strip_prefix(b"oid ").ok_or_else(unexpected)?;
        let oid = ObjectId::from_hex(format, hex)
            .map_err(|_| ProtocolError::malformed("object-info: protocol error, expected to get oid, not ", hex))?;
        self.oids.push(oid);
        within(self.oids.len(), limits.object_infos_max, "oid lines")
    }
}

#[cfg(test)]
#[path = "v2_tests.rs"]
mod tests;
