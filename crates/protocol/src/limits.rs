//! Every bound on what a peer may send.

/// The bounds that parsers enforce. The defaults are git's where git has one; git leaves the others open.
///
/// Exceeding a bound is [`ProtocolError::Limit`](crate::ProtocolError::Limit), except where a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one fetch request, all packets together (git: `http.maxRequestBuffer`, 10 MiB).
    pub request_bytes_max: usize,
    /// Distinct wants of one request.
    pub wants_max: usize,
    /// Haves of one request, or of one stateful conversation.
    pub haves_max: usize,
    /// `shallow` lines of one request, fetch or push.
    pub shallows_max: usize,
    /// `ref-prefix` lines of one `ls-refs`. This many or more are not refused: as in git, all are ignored.
    pub ref_prefixes_max: usize,
    /// `want-ref` lines of one fetch.
    pub want_refs_max: usize,
    /// `deepen-not` lines of one fetch.
    pub deepen_nots_max: usize,
    /// `oid` lines of one `object-info`.
    pub object_infos_max: usize,
    /// `server-option` lines of one v2 request.
    pub server_options_max: usize,
    /// Bytes of a filter specification.
    pub filter_bytes_max: usize,
    /// Filters in a specification, nested ones counted.
    pub filters_max: usize,
    /// How deep `combine:` may nest.
    pub filter_depth_max: usize,
    /// Bytes of a push before its pack: commands, certificate, options.
    pub push_bytes_max: usize,
    /// Commands of one push.
    pub commands_max: usize,
    /// Bytes of a ref name in a command.
    pub ref_name_bytes_max: usize,
    /// Push options of one push.
    pub push_options_max: usize,
    /// Bytes of one push option.
    pub push_option_bytes_max: usize,
    /// Bytes of all push options of one push.
    pub push_options_bytes_max: usize,
    /// Bytes of a push certificate.
    pub certificate_bytes_max: usize,
    /// Refs that a client takes from a remote's advertisement or `ls-refs`.
    pub remote_refs_max: usize,
    /// Bytes that a client takes of an advertisement, of `ls-refs`, or of a report.
    pub answer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 10 << 20,
            wants_max: 65_536,
            haves_max: 262_144,
            shallows_max: 262_144,
            ref_prefixes_max: 65_536,
            want_refs_max: 65_536,
            deepen_nots_max: 4_096,
            object_infos_max: 65_536,
            server_options_max: 256,
            filter_bytes_max: 65_516,
            filters_max: 256,
            filter_depth_max: 8,
            push_bytes_max: 64 << 20,
            commands_max: 100_000,
            ref_name_bytes_max: 4_096,
            push_options_max: 1_024,
            push_option_bytes_max: 65_516,
            push_options_bytes_max: 256 << 10,
            certificate_bytes_max: 16 << 20,
            remote_refs_max: 4_000_000,
            answer_bytes_max: 1 << 30,
        }
    }
}

impl Limits {
    /// The default limits, which can then be changed field by field.
    pub fn new() -> Self {
        Self::default()
    }
}
