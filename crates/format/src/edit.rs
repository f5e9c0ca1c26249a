//! What a ledger entry says: edits of a repository's refs, layers and settings, and edits of the directory of names.

use crate::list_entry::ListEdit;
use crate::{Collection, EditId, LayerId, LogId};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, RefName};

/// One atomic change of a repository: all of it applies, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Tells this edit from every other.
    pub id: EditId,
    /// When it was made, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Who made it; empty where nobody was authenticated.
    pub actor: String,
    /// What it was made for.
    pub cause: Cause,
    /// The first edit of a log fixes its object format; later ones must carry `None`.
    pub object_format: Option<ObjectFormat>,
    /// Compare-and-swap of refs, by name, each name once.
    pub refs: Vec<RefUpdate>,
    /// New symbolic refs and ends of old ones; `HEAD` is one of them.
    pub symrefs: Vec<SymrefChange>,
    /// Layers that become part of the repository.
    pub added: Vec<AddedLayer>,
    /// Layers that end; each must be there.
    pub removed: Vec<LayerId>,
    /// Settings under git's own names, lower-cased where git ignores case.
    pub settings: Vec<SettingChange>,
    /// The new shallow boundary of the repository itself, whole, where it changes; of a push, what it adds to it.
    pub shallow: Option<Vec<ObjectId>>,
    /// What a push said beside its commands; kept for whoever reads the log, of no effect on the repository.
    pub note: Option<Box<PushNote>>,
    /// What a collector did with layers that left the list.
    pub collection: Option<Box<Collection>>,
}

impl Edit {
    /// An edit that changes nothing yet.
    pub fn new(id: EditId, time_ms: i64, cause: Cause, actor: impl Into<String>) -> Self {
        Self {
            id,
            time_ms,
            actor: actor.into(),
            cause,
            object_format: None,
            refs: Vec::new(),
            symrefs: Vec::new(),
            added: Vec::new(),
            removed: Vec::new(),
            settings: Vec::new(),
            shallow: None,
            note: None,
            collection: None,
        }
    }
}

/// What a push said beside its commands. A peer's bytes: data, never to be put into a header or a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushNote {
    /// The push options, in order.
    pub options: Vec<Bytes>,
    /// The certificate of a signed push.
    pub certificate: Option<PushCertificate>,
}

/// The certificate of a signed push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCertificate {
    /// The certificate as it came, signature and all.
    pub text: Bytes,
    /// What its nonce is worth.
    pub nonce: NonceStatus,
    /// What its signature was worth when it came; `None` in what was written before that was looked at.
    pub signature: Option<PushSignature>,
}

/// What the signature of a push certificate was worth, in view of the keys that were known then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSignature {
    /// Whether it is good.
    pub status: SignatureStatus,
    /// The user whose key made it; empty if nobody's did.
    pub signer: String,
    /// The fingerprint of the key that made it, or is said to have made it: `SHA256:…` for SSH, upper-case hex digits for
    /// OpenPGP; empty where there is none or it cannot be told.
    pub key: String,
}

/// Whether a signature is good (githooks, `GIT_PUSH_CERT_STATUS`; the letters of git-log's `%G?`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SignatureStatus {
    /// Good, by a known user's key.
    Good = 1,
    /// Good, by a key that is nobody's here.
    Unknown = 2,
    /// Not of what was signed.
    Bad = 3,
    /// It cannot be checked: of a kind that is not verified here, or by a key that is not known.
    Unchecked = 4,
    /// There is none.
    None = 5,
    /// Good, but the time that it was given is over.
    Expired = 6,
    /// Good, but by a key whose time is over.
    ExpiredKey = 7,
    /// Good, but by a key that its owner has taken back.
    RevokedKey = 8,
}

impl SignatureStatus {
    /// Git's letter for it: `G`, `U`, `B`, `E`, `N`, `X`, `Y` or `R`.
    pub const fn letter(self) -> char {
        match self {
            Self::Good => 'G',
            Self::Unknown => 'U',
            Self::Bad => 'B',
            Self::Unchecked => 'E',
            Self::None => 'N',
            Self::Expired => 'X',
            Self::ExpiredKey => 'Y',
            Self::RevokedKey => 'R',
        }
    }
}

/// What the nonce of a push certificate is worth (githooks, `GIT_PUSH_CERT_NONCE_STATUS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NonceStatus {
    /// The one the server gave.
    Ok = 1,
    /// One the server gave at another time, further away than it tolerates.
    Slop = 2,
    /// Not one that the server gave.
    Bad = 3,
    /// There is none.
    Missing = 4,
    /// There is one, although the server asked for none.
    Unsolicited = 5,
}

impl NonceStatus {
    /// The name that git gives it: `OK`, `SLOP`, `BAD`, `MISSING` or `UNSOLICITED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Slop => "SLOP",
            Self::Bad => "BAD",
            Self::Missing => "MISSING",
            Self::Unsolicited => "UNSOLICITED",
        }
    }
}

/// What an edit was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// A repository was made.
    Create = 1,
    /// A client pushed.
    Push = 2,
    /// Inline layers moved to the bucket.
    Flush = 3,
    /// Layers were merged.
    Compact = 4,
    /// The unreachable was left out.
    Collect = 5,
    /// A directory or remote was imported.
    Import = 6,
    /// An administrator changed settings or `HEAD`.
    Administer = 7,
}

/// Compare-and-swap of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// The ref.
    pub name: RefName,
    /// Its value before; `None` if it must not exist.
    pub old: Option<ObjectId>,
    /// Its value after; `None` deletes it.
    pub new: Option<RefTarget>,
}

/// The value of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefTarget {
    /// The object the ref names.
    pub oid: ObjectId,
    /// Where that is an annotated tag, the object it peels to.
    pub peeled: Option<ObjectId>,
}

/// A symbolic ref made, moved or (`target` is `None`) ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymrefChange {
    /// The symbolic ref.
    pub name: RefName,
    /// The ref it names, which need not exist.
    pub target: Option<RefName>,
}

/// A setting given a value or (`None`) put back to its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// The name, for example `receive.denynonfastforwards`.
    pub name: String,
    /// The value, as git would write it.
    pub value: Option<String>,
}

/// A layer that an edit adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedLayer {
    /// What the layer list says of it.
    pub meta: LayerMeta,
    /// Where its bytes are.
    pub place: LayerPlace,
}

/// What the layer list says of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerMeta {
    /// Its name.
    pub id: LayerId,
    /// Size of `<id>.pack`.
    pub pack_bytes: u64,
    /// Size of `<id>.cue`.
    pub cue_bytes: u64,
    /// Objects in the pack.
    pub objects: u32,
    /// Segments in the cue.
    pub segments: u32,
    /// 0 for a flushed layer; one more than its inputs for a compacted one.
    pub level: u8,
    /// Every delta's base is in this layer, so that stock git reads the pack alone.
    pub self_contained: bool,
    /// Its objects' closures were not checked; they are kept, but vouch for nothing.
    pub unreachable: bool,
    /// Its deltas' bases were chosen at compaction; doing it again would change nothing.
    pub bases_chosen: bool,
}

/// Where a layer's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerPlace {
    /// In the entry itself: an inline layer, until a flush.
    Inline {
        /// The bytes of the pack.
        pack: Bytes,
        /// The bytes of the cue.
        cue: Bytes,
    },
    /// In the bucket, under the layer's keys.
    Bucket,
}

/// One atomic change of the directory of names; each name once.
pub type DirectoryEdit = ListEdit<DirectoryChange>;

/// One change of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryChange {
    /// A name is given, moved or freed.
    Name(NameChange),
    /// A log has no name, and had none at the time of the edit: from now on it can get none.
    Abandon(LogId),
    /// Nothing of an abandoned log is left.
    Forget(LogId),
}

/// Compare-and-swap of one repository name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// `<owner>/<name>`, in its one canonical spelling, without `.git`.
    pub name: String,
    /// The repository of that name before; `None` if the name must be free.
    pub old: Option<LogId>,
    /// The repository of that name after; `None` frees it.
    pub new: Option<RepositoryRecord>,
}

/// What the directory says of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepositoryRecord {
    /// Its log, and the prefix of its keys.
    pub log: LogId,
    /// Its object format.
    pub object_format: ObjectFormat,
}
