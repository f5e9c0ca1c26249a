//! Ledger entries of a repository (docs/format/entry.md).

use crate::codec::{Envelope, Reader, Writer, check_flags, object_format, object_format_code};
use crate::error::malformed;
use crate::layer::{LAYER_LEN_MIN, layer_len, put_layer, read_layer};
use crate::retired::{collection_len, put_collection, read_collection};
use crate::{
    Cause, Edit, EditId, FormatError, LayerId, NonceStatus, PushCertificate, PushNote, PushSignature, RefTarget,
    RefUpdate, Result, SettingChange, SignatureStatus, SymrefChange,
};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

const ENVELOPE: Envelope = Envelope {
    what: "ledger entry",
    magic: *b"CLE\0",
    version: 1,
};
const EDIT_LEN_MIN: usize = 56;
const REF_LEN_MIN: usize = 7;
const SYMREF_LEN_MIN: usize = 8;
const SETTING_LEN_MIN: usize = 7;
const NOTE_LEN_MIN: usize = 12;
const OPTION_LEN_MIN: usize = 4;
const SIGNATURE_LEN_MIN: usize = 4;

const SETS_FORMAT: u8 = 1;
const SETS_SHALLOW: u8 = 2;
const HAS_NOTE: u8 = 4;
const COLLECTS: u8 = 8;
const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;
const HAS_PEELED: u8 = 4;

/// Bytes an entry takes beside its edits.
pub const ENTRY_OVERHEAD_BYTES: usize = 24;

/// One numbered record of a repository's log: a group of edits that became durable together, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub number: u64,
    /// The edits, to be applied one after another.
    pub edits: Vec<Edit>,
}

impl Entry {
    /// The bytes of the entry; see [`encode_entry`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode_entry(self.number, &self.edits)
    }

    /// Reads an entry. Inline layers share its buffer, which lives as long as they do.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut from = Reader::new(ENVELOPE, bytes)?;
        let (number, count) = (from.u64()?, from.u32()?);
        let edits = from.items(count, EDIT_LEN_MIN, read_edit)?;
        from.finish()?;
        Ok(Self { number, edits })
    }
}

/// The bytes of an entry of edits that somebody else owns.
///
/// Fails where an edit mixes object formats, a name is longer than 65,535 bytes, or an inline layer's bytes are not as
/// many as its sizes say.
pub fn encode_entry<'a>(number: u64, edits: impl IntoIterator<Item = &'a Edit, IntoIter: Clone>) -> Result<Vec<u8>> {
    let edits = edits.into_iter();
    let body_len = 12 + edits.clone().map(edit_len_max).sum::<usize>();
    let mut out = Writer::new(ENVELOPE, body_len);
    out.u64(number);
    out.count(edits.clone().count())?;
    for edit in edits {
        put_edit(&mut out, edit)?;
    }
    Ok(out.finish())
}

/// Bytes an edit takes in an entry, or a few more: oids are counted at their widest. For keeping a group of edits within
/// a log store's limit; beside its edits an entry takes [`ENTRY_OVERHEAD_BYTES`].
pub fn edit_len_max(edit: &Edit) -> usize {
    let refs = edit
        .refs
        .iter()
        .map(|update| REF_LEN_MIN + update.name.as_bytes().len() + 3 * 32);
    let symrefs = edit.symrefs.iter().map(|change| {
        SYMREF_LEN_MIN + change.name.as_bytes().len() + change.target.as_ref().map_or(0, |name| name.as_bytes().len())
    });
    let settings = edit
        .settings
        .iter()
        .map(|change| SETTING_LEN_MIN + change.name.len() + change.value.as_ref().map_or(0, String::len));
    let ids = edit.removed.len() * 16 + edit.shallow.as_ref().map_or(0, |oids| oids.len() * 32);
    let layers = edit.added.iter().map(layer_len);
    let note = edit.note.as_deref().map_or(0, note_len);
    let collection = edit.collection.as_deref().map_or(0, collection_len);
    EDIT_LEN_MIN
        + note
        + collection
        + edit.actor.len()
        + refs.chain(symrefs).chain(settings).chain(layers).sum::<usize>()
        + ids
}

fn note_len(note: &PushNote) -> usize {
    let options = note.options.iter().map(|option| OPTION_LEN_MIN + option.len());
    let certificate = note
        .certificate
        .as_ref()
        .map_or(0, |certificate| certificate.text.len());
    let signature = note.certificate.as_ref().and_then(|it| it.signature.as_ref());
    let signature = signature.map_or(0, |it| SIGNATURE_LEN_MIN + it.signer.len() + it.key.len());
    NOTE_LEN_MIN + options.sum::<usize>() + certificate + signature
}

fn put_edit(out: &mut Writer, edit: &Edit) -> Result<()> {
    let format = oid_format(edit);
    let shallow = edit.shallow.as_deref().unwrap_or_default();
    out.u128(edit.id.0);
    out.i64(edit.time_ms);
    out.u8(edit.cause as u8);
    out.u8(format.map_or(0, object_format_code));
    out.u8(flag(edit.object_format.is_some(), SETS_FORMAT)
        | flag(edit.shallow.is_some(), SETS_SHALLOW)
        | flag(edit.note.is_some(), HAS_NOTE)
        | flag(edit.collection.is_some(), COLLECTS));
    out.u8(0);
    out.name_len(edit.actor.as_bytes())?;
    out.u16(0);
    let counts = [
        edit.refs.len(),
        edit.symrefs.len(),
        edit.added.len(),
        edit.removed.len(),
        edit.settings.len(),
    ];
    for count in counts.into_iter().chain([shallow.len()]) {
        out.count(count)?;
    }
    out.raw(edit.actor.as_bytes());
    edit.refs.iter().try_for_each(|update| put_ref(out, format, update))?;
    edit.symrefs.iter().try_for_each(|change| put_symref(out, change))?;
    edit.added.iter().try_for_each(|layer| put_layer(out, layer))?;
    edit.removed.iter().for_each(|id| out.u128(id.0));
    edit.settings.iter().try_for_each(|change| put_setting(out, change))?;
    shallow.iter().try_for_each(|oid| out.oid(format, oid))?;
    edit.note.as_deref().map_or(Ok(()), |note| put_note(out, note))?;
    let collection = edit.collection.as_deref();
    collection.map_or(Ok(()), |collection| put_collection(out, collection))
}

/// The format of the oids in an edit, or the format it sets; `None` where it has neither.
fn oid_format(edit: &Edit) -> Option<ObjectFormat> {
    let of_ref = |update: &RefUpdate| update.old.or(update.new.map(|new| new.oid)).map(|oid| oid.format());
    let of_shallow = || edit.shallow.iter().flatten().next().map(ObjectId::format);
    edit.object_format
        .or_else(|| edit.refs.iter().find_map(of_ref))
        .or_else(of_shallow)
}

fn read_edit(from: &mut Reader<'_>) -> Result<Edit> {
    let (id, time_ms, cause) = (EditId(from.u128()?), from.i64()?, cause(from.u8()?)?);
    let format = match from.u8()? {
        0 => None,
        code => Some(object_format(code)?),
    };
    let flags = from.u8()?;
    check_flags("edit flags", flags, SETS_FORMAT | SETS_SHALLOW | HAS_NOTE | COLLECTS)?;
    from.reserved::<1>()?;
    let actor_len = from.u16()?;
    from.reserved::<2>()?;
    let [refs, symrefs, added, removed, settings, shallow] = counts(from)?;
    if flags & SETS_FORMAT != 0 && format.is_none() {
        return malformed(ENVELOPE.what, "an edit sets the object format to none");
    }
    if flags & SETS_SHALLOW == 0 && shallow > 0 {
        return malformed(ENVELOPE.what, "shallow commits in an edit that sets none");
    }
    let width = format.unwrap_or_default().width();
    let edit = Edit {
        id,
        time_ms,
        actor: from.text(actor_len.into())?,
        cause,
        object_format: format.filter(|_| flags & SETS_FORMAT != 0),
        refs: from.items(refs, REF_LEN_MIN, |from| read_ref(from, format))?,
        symrefs: from.items(symrefs, SYMREF_LEN_MIN, read_symref)?,
        added: from.items(added, LAYER_LEN_MIN, read_layer)?,
        removed: from.items(removed, 16, |from| from.u128().map(LayerId))?,
        settings: from.items(settings, SETTING_LEN_MIN, read_setting)?,
        shallow: Some(from.items(shallow, width, |from| from.oid(format))?).filter(|_| flags & SETS_SHALLOW != 0),
        note: match flags & HAS_NOTE {
            0 => None,
            _ => Some(Box::new(read_note(from)?)),
        },
        collection: match flags & COLLECTS {
            0 => None,
            _ => Some(Box::new(read_collection(from)?)),
        },
    };
    match oid_format(&edit) == format {
        true => Ok(edit),
        false => malformed(ENVELOPE.what, "an edit states an object format that nothing in it has"),
    }
}

fn counts<const N: usize>(from: &mut Reader<'_>) -> Result<[u32; N]> {
    let mut counts = [0; N];
    for count in &mut counts {
        *count = from.u32()?;
    }
    Ok(counts)
}

fn cause(code: u8) -> Result<Cause> {
    match code {
        1 => Ok(Cause::Create),
        2 => Ok(Cause::Push),
        3 => Ok(Cause::Flush),
        4 => Ok(Cause::Compact),
        5 => Ok(Cause::Collect),
        6 => Ok(Cause::Import),
        7 => Ok(Cause::Administer),
        got => Err(FormatError::Unknown {
            what: "edit cause",
            got: got.into(),
        }),
    }
}

fn put_ref(out: &mut Writer, format: Option<ObjectFormat>, update: &RefUpdate) -> Result<()> {
    let name = update.name.as_bytes();
    let peeled = update.new.and_then(|new| new.peeled);
    out.name_len(name)?;
    out.u8(flag(update.old.is_some(), HAS_OLD)
        | flag(update.new.is_some(), HAS_NEW)
        | flag(peeled.is_some(), HAS_PEELED));
    out.raw(name);
    let oids = [update.old, update.new.map(|new| new.oid), peeled];
    oids.iter().flatten().try_for_each(|oid| out.oid(format, oid))
}

fn read_ref(from: &mut Reader<'_>, format: Option<ObjectFormat>) -> Result<RefUpdate> {
    let (name_len, flags) = (from.u16()?, from.u8()?);
    check_flags("ref flags", flags, HAS_OLD | HAS_NEW | HAS_PEELED)?;
    if flags & (HAS_NEW | HAS_PEELED) == HAS_PEELED {
        return malformed(ENVELOPE.what, "a peeled value without a value");
    }
    let name = from.ref_name(name_len.into())?;
    let mut oid = |flag: u8| {
        if flags & flag == 0 {
            Ok(None)
        } else {
            from.oid(format).map(Some)
        }
    };
    let (old, new, peeled) = (oid(HAS_OLD)?, oid(HAS_NEW)?, oid(HAS_PEELED)?);
    Ok(RefUpdate {
        name,
        old,
        new: new.map(|oid| RefTarget { oid, peeled }),
    })
}

fn put_symref(out: &mut Writer, change: &SymrefChange) -> Result<()> {
    let target = change.target.as_ref().map_or(&b""[..], |target| target.as_bytes());
    out.name_len(change.name.as_bytes())?;
    out.name_len(target)?;
    out.raw(change.name.as_bytes());
    out.raw(target);
    Ok(())
}

fn read_symref(from: &mut Reader<'_>) -> Result<SymrefChange> {
    let (name_len, target_len) = (from.u16()?, from.u16()?);
    let name = from.ref_name(name_len.into())?;
    let target = match target_len {
        0 => None,
        len => Some(from.ref_name(len.into())?),
    };
    Ok(SymrefChange { name, target })
}

fn put_setting(out: &mut Writer, change: &SettingChange) -> Result<()> {
    let value = change.value.as_deref().unwrap_or_default();
    out.name_len(change.name.as_bytes())?;
    out.u8(change.value.is_some().into());
    out.count(value.len())?;
    out.raw(change.name.as_bytes());
    out.raw(value.as_bytes());
    Ok(())
}

fn read_setting(from: &mut Reader<'_>) -> Result<SettingChange> {
    let (name_len, present, value_len) = (from.u16()?, from.u8()?, from.u32()?);
    check_flags("setting flags", present, 1)?;
    if present == 0 && value_len > 0 {
        return malformed(ENVELOPE.what, "a value in a setting that has none");
    }
    let name = from.text(name_len.into())?;
    let value = from.text(value_len as usize)?;
    Ok(SettingChange {
        name,
        value: Some(value).filter(|_| present != 0),
    })
}

fn put_note(out: &mut Writer, note: &PushNote) -> Result<()> {
    let certificate = note.certificate.as_ref();
    let text = certificate.map_or(&b""[..], |certificate| &certificate.text);
    let signature = certificate.and_then(|certificate| certificate.signature.as_ref());
    out.u8(certificate.map_or(0, |certificate| certificate.nonce as u8));
    out.u8(signature.map_or(0, |signature| signature.status as u8));
    out.u16(0);
    out.count(note.options.len())?;
    out.count(text.len())?;
    for option in &note.options {
        out.count(option.len())?;
        out.raw(option);
    }
    out.raw(text);
    if let Some(signature) = signature {
        out.name_len(signature.signer.as_bytes())?;
        out.name_len(signature.key.as_bytes())?;
        out.raw(signature.signer.as_bytes());
        out.raw(signature.key.as_bytes());
    }
    Ok(())
}

/// Copies: a note outlives no entry's buffer for its sake.
fn read_note(from: &mut Reader<'_>) -> Result<PushNote> {
    let (nonce, status) = (nonce_status(from.u8()?)?, signature_status(from.u8()?)?);
    from.reserved::<2>()?;
    let (options, text_len) = (from.u32()?, from.u32()?);
    if nonce.is_none() && (text_len > 0 || status.is_some()) {
        return malformed(ENVELOPE.what, "a push certificate without a nonce status");
    }
    let read_option = |from: &mut Reader<'_>| {
        let len = from.u32()?;
        from.raw(len as usize).map(Bytes::copy_from_slice)
    };
    let options = from.items(options, OPTION_LEN_MIN, read_option)?;
    let text = Bytes::copy_from_slice(from.raw(text_len as usize)?);
    let signature = status.map(|status| read_signature(from, status)).transpose()?;
    let certificate = nonce.map(|nonce| PushCertificate { text, nonce, signature });
    Ok(PushNote { options, certificate })
}

fn read_signature(from: &mut Reader<'_>, status: SignatureStatus) -> Result<PushSignature> {
    let (signer_len, key_len) = (from.u16()?, from.u16()?);
    Ok(PushSignature {
        status,
        signer: from.text(signer_len.into())?,
        key: from.text(key_len.into())?,
    })
}

fn signature_status(code: u8) -> Result<Option<SignatureStatus>> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(SignatureStatus::Good)),
        2 => Ok(Some(SignatureStatus::Unknown)),
        3 => Ok(Some(SignatureStatus::Bad)),
        4 => Ok(Some(SignatureStatus::Unchecked)),
        5 => Ok(Some(SignatureStatus::None)),
        6 => Ok(Some(SignatureStatus::Expired)),
        7 => Ok(Some(SignatureStatus::ExpiredKey)),
        8 => Ok(Some(SignatureStatus::RevokedKey)),
        got => Err(FormatError::Unknown {
            what: "signature status",
            got: got.into(),
        }),
    }
}

fn nonce_status(code: u8) -> Result<Option<NonceStatus>> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(NonceStatus::Ok)),
        2 => Ok(Some(NonceStatus::Slop)),
        3 => Ok(Some(NonceStatus::Bad)),
        4 => Ok(Some(NonceStatus::Missing)),
        5 => Ok(Some(NonceStatus::Unsolicited)),
        got => Err(FormatError::Unknown {
            what: "nonce status",
            got: got.into(),
        }),
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}
