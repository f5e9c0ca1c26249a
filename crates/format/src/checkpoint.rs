//! Checkpoints of a repository's log (docs/format/checkpoint.md).

use crate::codec::{Envelope, Reader, Writer, check_flags, object_format, object_format_code};
use crate::error::{invalid, malformed};
use crate::layer::{LAYER_LEN_MIN, layer_len, put_layer, read_layer};
use crate::retired::{RETIRED_LEN_MIN, put_retired, read_retired};
use crate::{AddedLayer, EditId, LogId, RefTarget, Result, RetiredLayer};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, RefName};

const ENVELOPE: Envelope = Envelope {
    what: "checkpoint",
    magic: *b"CKP\0",
    version: 2,
};
/// Before layers were retired.
const OLDEST: u16 = 1;
const REF_LEN_MIN: usize = 26;
const SYMREF_LEN_MIN: usize = 12;
const SETTING_LEN_MIN: usize = 6;
const HAS_PEELED: u8 = 1;

/// All of a repository at one place in its log, so that the entries before it need not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log it belongs to.
    pub log: LogId,
    /// The number of the first entry that is not in it.
    pub number: u64,
    /// The repository's object format.
    pub object_format: ObjectFormat,
    /// Every ref by name, in ascending order.
    pub refs: Vec<(RefName, RefTarget)>,
    /// Every symbolic ref and the ref it names, in ascending order.
    pub symrefs: Vec<(RefName, RefName)>,
    /// Every setting that is not at its default, by name, in ascending order.
    pub settings: Vec<(String, String)>,
    /// The shallow boundary of the repository itself.
    pub shallow: Vec<ObjectId>,
    /// The layers, newest last. Inline ones carry their bytes.
    pub layers: Vec<AddedLayer>,
    /// The most recent edits, oldest first, to recognise one whose reply was lost.
    pub recent_edits: Vec<EditId>,
    /// Layers that left the list and whose payloads may still be in the bucket, in the order in which they left.
    pub retired: Vec<RetiredLayer>,
}

impl Checkpoint {
    /// The bytes of the checkpoint.
    ///
    /// Fails where names do not ascend, an oid is of the other format, a name is longer than 65,535 bytes, or an inline
    /// layer's bytes are not as many as its sizes say.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check_order().or_else(|reason| invalid(ENVELOPE.what, reason))?;
        let layers = self.layers.iter().map(layer_len).sum::<usize>();
        let mut out = Writer::new(
            ENVELOPE,
            64 + 64 * self.refs.len() + layers + 16 * self.recent_edits.len() + 33 * self.retired.len(),
        );
        out.u64(self.number);
        out.u128(self.log.0);
        out.u8(object_format_code(self.object_format));
        [0, 0, 0].into_iter().for_each(|reserved| out.u8(reserved));
        let counts = [
            self.refs.len(),
            self.symrefs.len(),
            self.settings.len(),
            self.shallow.len(),
            self.layers.len(),
        ];
        for count in counts.into_iter().chain([self.recent_edits.len(), self.retired.len()]) {
            out.count(count)?;
        }
        self.put_refs(&mut out)?;
        for (name, target) in &self.symrefs {
            out.name_len(name.as_bytes())?;
            out.name_len(target.as_bytes())?;
            out.raw(name.as_bytes());
            out.raw(target.as_bytes());
        }
        for (name, value) in &self.settings {
            out.name_len(name.as_bytes())?;
            out.count(value.len())?;
            out.raw(name.as_bytes());
            out.raw(value.as_bytes());
        }
        self.shallow
            .iter()
            .try_for_each(|oid| out.oid(Some(self.object_format), oid))?;
        self.layers.iter().try_for_each(|layer| put_layer(&mut out, layer))?;
        self.recent_edits.iter().for_each(|id| out.u128(id.0));
        self.retired.iter().for_each(|layer| put_retired(&mut out, layer));
        Ok(out.finish())
    }

    /// Reads a checkpoint. Inline layers share its buffer, which lives as long as they do.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let (mut from, version) = Reader::since(OLDEST, ENVELOPE, bytes)?;
        let (number, log, object_format) = (from.u64()?, LogId(from.u128()?), object_format(from.u8()?)?);
        from.reserved::<3>()?;
        let mut counts = [0; 7];
        let known = if version == OLDEST { 6 } else { 7 };
        for count in counts.iter_mut().take(known) {
            *count = from.u32()?;
        }
        let [refs, symrefs, settings, shallow, layers, recent_edits, retired] = counts;
        let format = Some(object_format);
        let mut name = Vec::new();
        let checkpoint = Self {
            log,
            number,
            object_format,
            refs: from.items(refs, REF_LEN_MIN, |from| read_ref(from, format, &mut name))?,
            symrefs: from.items(symrefs, SYMREF_LEN_MIN, read_symref)?,
            settings: from.items(settings, SETTING_LEN_MIN, read_setting)?,
            shallow: from.items(shallow, object_format.width(), |from| from.oid(format))?,
            layers: from.items(layers, LAYER_LEN_MIN, read_layer)?,
            recent_edits: from.items(recent_edits, 16, |from| from.u128().map(EditId))?,
            retired: from.items(retired, RETIRED_LEN_MIN, read_retired)?,
        };
        from.finish()?;
        checkpoint
            .check_order()
            .or_else(|reason| malformed(ENVELOPE.what, reason))?;
        Ok(checkpoint)
    }

    fn check_order(&self) -> std::result::Result<(), &'static str> {
        let refs = self.refs.is_sorted_by(|left, right| left.0 < right.0);
        let symrefs = self.symrefs.is_sorted_by(|left, right| left.0 < right.0);
        let settings = self.settings.is_sorted_by(|left, right| left.0 < right.0);
        if refs && symrefs && settings {
            Ok(())
        } else {
            Err("names do not ascend")
        }
    }

    /// A ref's name shares with the one before as much as it can: names come in order and are long and alike.
    fn put_refs(&self, out: &mut Writer) -> Result<()> {
        let mut before: &[u8] = b"";
        for (name, target) in &self.refs {
            let name = name.as_bytes();
            let shared = shared_len(before, name);
            let (prefix, suffix) = name.split_at_checked(shared).unwrap_or((b"", name));
            out.name_len(prefix)?;
            out.name_len(suffix)?;
            out.u8(if target.peeled.is_some() { HAS_PEELED } else { 0 });
            out.raw(suffix);
            out.oid(Some(self.object_format), &target.oid)?;
            target
                .peeled
                .iter()
                .try_for_each(|oid| out.oid(Some(self.object_format), oid))?;
            before = name;
        }
        Ok(())
    }
}

fn shared_len(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Reads a ref; `name` holds that of the ref before, and then this one's.
fn read_ref(from: &mut Reader<'_>, format: Option<ObjectFormat>, name: &mut Vec<u8>) -> Result<(RefName, RefTarget)> {
    let (prefix_len, suffix_len, flags) = (from.u16()?, from.u16()?, from.u8()?);
    check_flags("ref flags", flags, HAS_PEELED)?;
    let suffix = from.raw(suffix_len.into())?;
    let shares_all_it_can = name
        .get(usize::from(prefix_len))
        .is_none_or(|next| suffix.first() != Some(next));
    if usize::from(prefix_len) > name.len() || !shares_all_it_can {
        return malformed(
            ENVELOPE.what,
            "a ref's name does not share what it should with the one before",
        );
    }
    name.truncate(prefix_len.into());
    name.extend_from_slice(suffix);
    let oid = from.oid(format)?;
    let peeled = if flags & HAS_PEELED == 0 {
        None
    } else {
        Some(from.oid(format)?)
    };
    Ok((from.ref_name_of(name)?, RefTarget { oid, peeled }))
}

fn read_symref(from: &mut Reader<'_>) -> Result<(RefName, RefName)> {
    let (name_len, target_len) = (from.u16()?, from.u16()?);
    Ok((from.ref_name(name_len.into())?, from.ref_name(target_len.into())?))
}

fn read_setting(from: &mut Reader<'_>) -> Result<(String, String)> {
    let (name_len, value_len) = (from.u16()?, from.u32()?);
    Ok((from.text(name_len.into())?, from.text(value_len as usize)?))
}
