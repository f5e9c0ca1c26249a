//! The check of one layer.

use super::Meter;
use crate::receive::{Intake, IntakeError, IntakeOptions, Lean, Policy, Settled, Tip};
use crate::{EngineError, View};
use bytes::Bytes;
use cuesta_format::{Cue, LayerPlace, LogId, layer_cue_key, layer_pack_key};
use cuesta_git::pack::{PACK_HEADER_LEN, PackHeader};
use cuesta_git::{Checksum, ObjectId};
use cuesta_ledger::LayerRecord;
use cuesta_store::{Bucket, Workers};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a pack read at once.
const READ_LEN: u64 = 8 << 20;

/// What is wrong with a layer, sort by sort.
type Findings = Vec<Vec<String>>;

pub(super) struct Check {
    view: View,
    record: Arc<LayerRecord>,
    quick: bool,
    bucket: Bucket,
    workers: Workers,
    pack_key: String,
    cue_key: String,
}

impl Check {
    pub(super) fn new(view: &View, log: LogId, record: Arc<LayerRecord>, quick: bool) -> Self {
        let world = view.world();
        Self {
            bucket: world.bucket.clone(),
            workers: world.workers.clone(),
            pack_key: layer_pack_key(log, record.meta.id),
            cue_key: layer_cue_key(log, record.meta.id),
            view: view.clone(),
            record,
            quick,
        }
    }

    /// On a worker. Stops at the first check that fails where the next ones rest on it.
    pub(super) fn run(&self, meter: &mut Meter) -> Result<Findings, EngineError> {
        let meta = &self.record.meta;
        let cue = match self.cue()? {
            Ok(cue) => cue,
            Err(what) => {
                // The pack is looked at all the same: it is the data.
                let pack = self.sum_up(meter)?;
                return Ok(vec![vec![what], pack.err().into_iter().collect()]);
            }
        };
        let counts = &cue.header.counts;
        if counts.entries() != meta.objects || cue.segments.len() != meta.segments {
            return Ok(vec![vec!["the cue's counts are not what the ledger says".to_owned()]]);
        }
        if self.quick {
            return Ok(vec![self.sum_up(meter)?.err().into_iter().collect()]);
        }
        let lean = Lean::waiting(self.view.clone(), self.workers.clone()).without(meta.id);
        let lean = if meta.unreachable { lean.everything() } else { lean };
        let settled = match self.settle(&lean, meter)? {
            Ok(settled) => settled,
            Err(what) => return Ok(vec![vec![what]]),
        };
        let shallow: HashSet<ObjectId> = self.view.state().shallow().iter().copied().collect();
        let entries = settled.audit_entries(&cue);
        if !entries.is_empty() || meta.unreachable {
            return Ok(vec![entries]);
        }
        let objects = settled.audit_objects(&cue, &shallow);
        let [incomplete, sets] = self.closures(&settled, &cue, &lean, &shallow)?;
        Ok(vec![objects, incomplete, sets])
    }

    /// Follows every commit, tag and root of the layer to all that it reaches.
    fn closures(
        &self,
        settled: &Settled,
        cue: &Cue,
        lean: &Lean,
        shallow: &HashSet<ObjectId>,
    ) -> Result<[Vec<String>; 2], EngineError> {
        let commits = 0..cue.segments.len();
        let entries = commits.chain(cue.header.counts.tag_entries());
        let roots = (0..cue.roots.len()).map(|root| cue.roots.oid(root));
        let values: Vec<ObjectId> = entries.map(|entry| cue.oid(entry)).chain(roots).collect();
        let reached = settled.reach(lean, shallow, &values)?;
        let broken = values
            .iter()
            .zip(&reached.tips)
            .filter(|(_, tip)| **tip == Tip::Incomplete);
        let incomplete = broken.map(|(oid, _)| format!("broken link: {oid} does not have all that it reaches"));
        Ok([incomplete.collect(), settled.audit_sets(cue, &reached)])
    }

    /// The cue, sound in itself.
    fn cue(&self) -> Result<Result<Cue, String>, EngineError> {
        let bytes = match &self.record.place {
            LayerPlace::Inline { cue, .. } => Ok(cue.clone()),
            LayerPlace::Bucket => match self.check_size(&self.cue_key, self.record.meta.cue_bytes)? {
                Ok(()) => self.fetch(&self.cue_key, 0..self.record.meta.cue_bytes)?,
                Err(what) => Err(what),
            },
        };
        let parse = |bytes: Bytes| {
            let cue = Cue::parse(bytes).map_err(|error| error.to_string())?;
            cue.verify().map_err(|error| error.to_string())?;
            Ok(cue)
        };
        Ok(bytes.and_then(parse))
    }

    /// Takes the pack apart; every object is hashed on the way.
    fn settle(&self, lean: &Lean, meter: &mut Meter) -> Result<Result<Settled, String>, EngineError> {
        let mut limits = self.view.world().options.receive.clone();
        // What is stored has been let in before.
        (limits.pack_bytes_max, limits.objects_max, limits.blob_bytes_max) = (None, u32::MAX, u64::MAX);
        let options = IntakeOptions::new(self.view.object_format(), limits, Policy::tolerant_fsck());
        let mut intake = Intake::new(options);
        let mut refused = None;
        let read = self.read_pack(meter, &mut |bytes| {
            refused = intake.feed(bytes).err();
            refused.is_none()
        })?;
        let settled = match (read, refused) {
            (Err(what), _) => return Ok(Err(what)),
            (_, Some(error)) => Err(error),
            (Ok(()), None) => intake.finish_pack().and_then(|()| intake.settle(lean)),
        };
        match settled {
            Ok(settled) => Ok(Ok(settled)),
            Err(IntakeError::Pack(fault)) => Ok(Err(fault.to_string())),
            Err(IntakeError::Known(error)) if error.kind() == crate::ErrorKind::Corrupt => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Compares the pack's trailer with its bytes, and its count with the ledger's.
    fn sum_up(&self, meter: &mut Meter) -> Result<Result<(), String>, EngineError> {
        let format = self.view.object_format();
        let mut checksum = Checksum::new(format);
        // The last bytes may be the trailer.
        let mut tail: Vec<u8> = Vec::new();
        let mut head: Vec<u8> = Vec::new();
        let read = self.read_pack(meter, &mut |bytes| {
            if head.len() < PACK_HEADER_LEN {
                head.extend(bytes.iter().take(PACK_HEADER_LEN - head.len()));
            }
            tail.extend_from_slice(bytes);
            let body = tail.len().saturating_sub(format.width());
            checksum.update(tail.get(..body).unwrap_or_default());
            tail.drain(..body);
            true
        })?;
        if let Err(what) = read {
            return Ok(Err(what));
        }
        let header = head.first_chunk().and_then(|head| PackHeader::decode(head).ok());
        Ok(
            if header.is_none_or(|header| header.count != self.record.meta.objects) {
                Err("the pack's header is not what the ledger says".to_owned())
            } else if checksum.finish().as_bytes() != tail {
                Err("the pack's checksum does not fit its bytes".to_owned())
            } else {
                Ok(())
            },
        )
    }

    /// Gives the pack's bytes in order, until `take` has enough of them. What is wrong with the payload is the inner error.
    fn read_pack(
        &self,
        meter: &mut Meter,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Result<(), String>, EngineError> {
        let len = self.record.meta.pack_bytes;
        if let LayerPlace::Inline { pack, .. } = &self.record.place {
            // What a pack in the bucket ends with: an inline one is covered by its entry's checksum.
            let mut checksum = Checksum::new(self.view.object_format());
            checksum.update(pack);
            if take(pack) {
                take(checksum.finish().as_bytes());
            }
            meter.add(len);
            return Ok(Ok(()));
        }
        let mut start = 0;
        while start < len {
            let end = len.min(start + READ_LEN);
            match self.fetch(&self.pack_key, start..end)? {
                Ok(bytes) if !take(&bytes) => break,
                Ok(_) => meter.add(end - start),
                Err(what) => return Ok(Err(what)),
            }
            start = end;
        }
        self.check_size(&self.pack_key, len)
    }

    /// Bytes of a payload, past all caches.
    fn fetch(&self, key: &str, range: Range<u64>) -> Result<Result<Bytes, String>, EngineError> {
        let end = range.end;
        let error = match self.workers.wait(self.bucket.get_range(key, range)) {
            Ok(bytes) => return Ok(Ok(bytes)),
            Err(error) => error,
        };
        // Stores refuse ranges outside a payload in many ways.
        match self.workers.wait(self.bucket.size(key))? {
            None => Ok(Err(format!("missing payload '{key}'"))),
            Some(size) if size < end => Ok(Err(format!("'{key}' is shorter than the ledger says"))),
            Some(_) => Err(error.into()),
        }
    }

    fn check_size(&self, key: &str, len: u64) -> Result<Result<(), String>, EngineError> {
        Ok(match self.workers.wait(self.bucket.size(key))? {
            Some(size) if size == len => Ok(()),
            Some(size) => Err(format!("'{key}' has {size} bytes, the ledger says {len}")),
            None => Err(format!("missing payload '{key}'")),
        })
    }
}
