//! Deltas resolved: every object of the push gets its kind, size and id, and is looked at.
//!
//! From each base outwards, depth first and without recursion, as `git index-pack` does it. A thread holds the objects
//! on its path that still have deltas to come; past the memory bound the oldest are dropped and made again when needed.

use super::entries::{Entries, Stored};
use super::error::{IntakeError, ObjectFault, PackFault};
use super::inspect::{Inspector, Refused};
use super::known::Known;
use super::large::{self, Content, ContentRef};
use super::options::{IntakeOptions, ReceiveOptions};
use super::parse::Parsed;
use super::source::EntrySource;
use super::spool::Spool;
use bytes::Bytes;
use cuesta_git::{ObjectId, ObjectKind, delta};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Thin bases fetched from the repository at once.
const OUTSIDE_BATCH: usize = 256;
/// Roots below which starting threads costs more than it gains.
const ROOTS_PER_THREAD_MIN: usize = 64;

/// Resolves all deltas of a parsed push.
pub(crate) fn resolve(parsed: &mut Parsed, known: &dyn Known, options: &IntakeOptions) -> Result<(), IntakeError> {
    let left = resolve_inside(parsed, options)?;
    if left > 0 {
        let left = resolve_outside(parsed, known, options, left)?;
        if left > 0 {
            return Err(PackFault::Unresolved(left).into());
        }
    }
    Ok(())
}

/// Resolves what hangs on whole objects of the push; answers how many deltas are left.
fn resolve_inside(parsed: &mut Parsed, options: &IntakeOptions) -> Result<u64, IntakeError> {
    let deltas = Deltas::new(&parsed.entries);
    if deltas.count == 0 {
        return Ok(0);
    }
    let entries = &parsed.entries;
    let whole = (0..entries.len()).filter(|entry| entries.stored(*entry) == Stored::Whole);
    let roots: Vec<Root> = whole
        .filter(|entry| deltas.any(entries, *entry))
        .map(Root::Inside)
        .collect();
    let found = walk(&parsed.spool, entries, &deltas, &roots, options)?;
    Ok(deltas.count - record(parsed, found))
}

/// Resolves what hangs on objects of the repository (thin packs); answers how many deltas are left.
fn resolve_outside(
    parsed: &mut Parsed,
    known: &dyn Known,
    options: &IntakeOptions,
    mut left: u64,
) -> Result<u64, IntakeError> {
    let deltas = Deltas::new(&parsed.entries);
    for batch in deltas.names(&parsed.entries).chunks(OUTSIDE_BATCH) {
        check_outside(known, batch, options)?;
        let objects = known.objects(batch)?;
        let found = batch.iter().zip(objects);
        let roots: Vec<Root> = found
            .filter_map(|(oid, object)| {
                object.map(|(kind, content)| Root::Outside {
                    oid: *oid,
                    kind,
                    content,
                })
            })
            .collect();
        let found = walk(&parsed.spool, &parsed.entries, &deltas, &roots, options)?;
        left = left.saturating_sub(record(parsed, found));
    }
    Ok(left)
}

/// Bases of the repository are held whole. A client that sends the object whole, or its base along, is never refused here.
fn check_outside(known: &dyn Known, oids: &[ObjectId], options: &IntakeOptions) -> Result<(), IntakeError> {
    let size_max = options.limits.structure_bytes_max;
    for (oid, described) in oids.iter().zip(known.describe(oids)?) {
        if let Some(size) = described
            .map(|described| described.size)
            .filter(|size| *size > size_max)
        {
            let oid = *oid;
            return Err(PackFault::LargeBase { oid, size, size_max }.into());
        }
    }
    Ok(())
}

/// Puts results into the columns; answers how many there are.
fn record(parsed: &mut Parsed, found: Vec<Found>) -> u64 {
    let mut count = 0;
    let entries = &mut parsed.entries;
    let format = entries.format();
    for found in found {
        count += found.resolved.len() as u64;
        for (resolved, oid) in found.resolved.into_iter().zip(found.oids.chunks(format.width())) {
            let Ok(oid) = ObjectId::from_bytes(format, oid) else {
                continue;
            };
            entries.resolve(resolved.entry, resolved.kind, resolved.size, &oid);
            if resolved.base != OUTSIDE {
                entries.rebase(resolved.entry, resolved.base);
            }
        }
        parsed.inspector.absorb(found.inspector);
    }
    count
}

/// Where a walk starts.
enum Root {
    /// A whole entry.
    Inside(u32),
    /// An object of the repository.
    Outside {
        oid: ObjectId,
        kind: ObjectKind,
        content: Bytes,
    },
}

/// The unresolved deltas by what they are based on.
struct Deltas {
    /// Those on entry `n` are `starts[n]..starts[n + 1]` of `by_entry`.
    starts: Vec<u32>,
    by_entry: Vec<u32>,
    /// Those with a named base, sorted by the name.
    by_name: Vec<u32>,
    /// For the first delta of each name: whether a base of that name has taken them all.
    taken: Vec<AtomicBool>,
    count: u64,
}

impl Deltas {
    fn new(entries: &Entries) -> Self {
        let unresolved = || (0..entries.len()).filter(|entry| entries.kind(*entry).is_none());
        let mut by_name = Vec::new();
        let mut starts = vec![0u32; entries.len() as usize + 1];
        let mut count = 0;
        for entry in unresolved() {
            count += 1;
            match entries.stored(entry) {
                Stored::Delta(base) => add_one(&mut starts, base as usize + 1),
                Stored::Named(_) => by_name.push(entry),
                Stored::Whole => {}
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut by_entry = vec![0u32; sum as usize];
        // Filled from the back, so that each list ends up in pack order; `ends` moves down to the starts.
        let mut ends: Vec<u32> = starts.get(1..).unwrap_or_default().to_vec();
        for entry in unresolved().collect::<Vec<_>>().into_iter().rev() {
            if let Stored::Delta(base) = entries.stored(entry)
                && let Some(end) = ends.get_mut(base as usize)
            {
                *end = end.saturating_sub(1);
                if let Some(slot) = by_entry.get_mut(*end as usize) {
                    *slot = entry;
                }
            }
        }
        by_name.sort_by_key(|entry| base_name(entries, *entry));
        let taken = by_name.iter().map(|_| AtomicBool::new(false)).collect();
        Self {
            starts,
            by_entry,
            by_name,
            taken,
            count,
        }
    }

    /// Whether anything hangs on a resolved entry.
    fn any(&self, entries: &Entries, entry: u32) -> bool {
        !self.on_entry(entry).is_empty() || !self.on_name(entries, &entries.oid(entry)).is_empty()
    }

    fn on_entry(&self, entry: u32) -> Range<usize> {
        let at = |index: usize| self.starts.get(index).map_or(0, |start| *start as usize);
        at(entry as usize)..at(entry as usize + 1)
    }

    fn on_name(&self, entries: &Entries, oid: &ObjectId) -> Range<usize> {
        let start = self.by_name.partition_point(|entry| base_name(entries, *entry) < *oid);
        let rest = self.by_name.get(start..).unwrap_or_default();
        let len = rest
            .iter()
            .take_while(|entry| base_name(entries, **entry) == *oid)
            .count();
        start..start + len
    }

    /// The deltas on an object's name, for the first that asks; of several entries with one id only one may have them.
    fn take_on_name(&self, entries: &Entries, oid: &ObjectId) -> Range<usize> {
        let range = self.on_name(entries, oid);
        match self.taken.get(range.start) {
            Some(taken) if !range.is_empty() && !taken.swap(true, Ordering::Relaxed) => range,
            _ => 0..0,
        }
    }

    /// The bases that are named, each once.
    fn names(&self, entries: &Entries) -> Vec<ObjectId> {
        let mut names: Vec<ObjectId> = self.by_name.iter().map(|entry| base_name(entries, *entry)).collect();
        names.dedup();
        names
    }
}

fn add_one(counts: &mut [u32], index: usize) {
    if let Some(count) = counts.get_mut(index) {
        *count += 1;
    }
}

fn base_name(entries: &Entries, entry: u32) -> ObjectId {
    match entries.stored(entry) {
        Stored::Named(number) => entries.named_base(number),
        _ => ObjectId::null(entries.format()),
    }
}

/// What one thread found.
struct Found {
    resolved: Vec<Resolved>,
    /// Their ids, back to back.
    oids: Vec<u8>,
    inspector: Inspector,
}

struct Resolved {
    entry: u32,
    /// The entry it was resolved against, or [`OUTSIDE`].
    base: u32,
    size: u64,
    kind: ObjectKind,
}

const OUTSIDE: u32 = u32::MAX;

impl Found {
    fn push(&mut self, resolved: Resolved, oid: &ObjectId) {
        // By a quarter: there may be as many as objects in the push, all held until the end.
        if self.resolved.len() == self.resolved.capacity() {
            let more = (self.resolved.len() / 4).max(RESOLVED_MIN);
            self.resolved.reserve_exact(more);
            self.oids.reserve_exact(more * oid.as_bytes().len());
        }
        self.resolved.push(resolved);
        self.oids.extend_from_slice(oid.as_bytes());
    }
}

/// Room for results that is made at once.
const RESOLVED_MIN: usize = 64;

/// Walks outwards from all roots, on as many threads as are worth it.
fn walk(
    spool: &Spool,
    entries: &Entries,
    deltas: &Deltas,
    roots: &[Root],
    options: &IntakeOptions,
) -> Result<Vec<Found>, IntakeError> {
    let threads = options.limits.threads.min(roots.len() / ROOTS_PER_THREAD_MIN).max(1);
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut walker = Walker::new(spool, entries, deltas, options, threads);
        while let Some(root) = roots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            if let Err(error) = walker.from(root) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(walker.found)
    };
    if threads == 1 {
        return Ok(vec![work()?]);
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

/// One thread's walk.
struct Walker<'a> {
    entries: &'a Entries,
    deltas: &'a Deltas,
    source: EntrySource<'a>,
    found: Found,
    /// The path from a root to where the walk is.
    path: Vec<Frame>,
    /// Bytes of content on the path.
    held: usize,
    held_max: usize,
    /// Bytes of content on the path that are in files.
    spilled: u64,
    limits: &'a ReceiveOptions,
    /// Frames below this have no content to drop.
    dropped_below: usize,
    /// Room for a delta, and buffers to be used again.
    delta: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

/// An object on the path, with the deltas on it that are still to do.
struct Frame {
    at: At,
    kind: ObjectKind,
    content: Option<Content>,
    by_entry: Range<usize>,
    by_name: Range<usize>,
}

#[derive(Clone)]
enum At {
    Entry(u32),
    Outside(Bytes),
}

impl<'a> Walker<'a> {
    fn new(
        spool: &'a Spool,
        entries: &'a Entries,
        deltas: &'a Deltas,
        options: &'a IntakeOptions,
        threads: usize,
    ) -> Self {
        Self {
            entries,
            deltas,
            source: EntrySource::new(spool, entries),
            found: Found {
                resolved: Vec::new(),
                oids: Vec::new(),
                inspector: Inspector::new(entries.format(), options.fsck.clone()),
            },
            path: Vec::new(),
            held: 0,
            held_max: options.limits.base_bytes_max / threads,
            spilled: 0,
            limits: &options.limits,
            dropped_below: 0,
            delta: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Resolves everything that hangs on a root.
    fn from(&mut self, root: &Root) -> Result<(), IntakeError> {
        self.dropped_below = 0;
        let frame = match root {
            Root::Inside(entry) => {
                let kind = self
                    .entries
                    .kind(*entry)
                    .ok_or(IntakeError::Internal("a whole entry has no kind"))?;
                self.frame(At::Entry(*entry), kind, &self.entries.oid(*entry))
            }
            Root::Outside { oid, kind, content } => self.frame(At::Outside(content.clone()), *kind, oid),
        };
        self.path.push(frame);
        while let Some(top) = self.path.last_mut() {
            let next = top.by_entry.next().and_then(|index| self.deltas.by_entry.get(index));
            let next = next.or_else(|| top.by_name.next().and_then(|index| self.deltas.by_name.get(index)));
            match next {
                Some(entry) => self.step(*entry)?,
                None => self.leave(),
            }
        }
        Ok(())
    }

    fn frame(&self, at: At, kind: ObjectKind, oid: &ObjectId) -> Frame {
        let by_entry = match at {
            At::Entry(entry) => self.deltas.on_entry(entry),
            At::Outside(_) => 0..0,
        };
        let by_name = self.deltas.take_on_name(self.entries, oid);
        Frame {
            at,
            kind,
            content: None,
            by_entry,
            by_name,
        }
    }

    /// Resolves one delta on the object at the end of the path, and goes on to what hangs on it.
    fn step(&mut self, entry: u32) -> Result<(), IntakeError> {
        let top = self.path.len().saturating_sub(1);
        self.fill(top)?;
        let Some(frame) = self.path.last_mut() else {
            return Err(IntakeError::Internal("the path is empty"));
        };
        let kind = frame.kind;
        let base = match frame.at {
            At::Entry(base) => base,
            At::Outside(_) => OUTSIDE,
        };
        let base_content = frame.held().ok_or(IntakeError::Internal("a base has no content"))?;
        let mut maker = Maker {
            source: &mut self.source,
            limits: self.limits,
            delta: &mut self.delta,
            spare: &mut self.spare,
        };
        let (content, oid) = maker.apply(entry, kind, base_content)?;
        let is_last = frame.by_entry.is_empty() && frame.by_name.is_empty();
        if is_last && let Some(done) = frame.content.take() {
            self.release(done);
        }
        let size = content.by_ref().len();
        let oid = match (oid, &content) {
            (Some(oid), _) => oid,
            (None, Content::Memory(bytes)) => self.inspect(entry, kind, bytes)?,
            (None, Content::Spooled(_)) => return Err(IntakeError::Internal("a file was not hashed")),
        };
        let resolved = Resolved {
            entry,
            base,
            size,
            kind,
        };
        self.found.push(resolved, &oid);
        self.enter(entry, kind, &oid, content);
        Ok(())
    }

    fn inspect(&mut self, entry: u32, kind: ObjectKind, content: &[u8]) -> Result<ObjectId, IntakeError> {
        let inspected = self.found.inspector.inspect(entry, kind, content);
        inspected.map_err(|refused| match refused {
            Refused::Fault(fault) => self.entries.fault(entry, fault).into(),
            Refused::Pack(fault) => fault.into(),
        })
    }

    /// Makes a resolved object the end of the path, if anything hangs on it.
    fn enter(&mut self, entry: u32, kind: ObjectKind, oid: &ObjectId, content: Content) {
        let frame = self.frame(At::Entry(entry), kind, oid);
        if frame.by_entry.is_empty() && frame.by_name.is_empty() {
            return reuse(&mut self.spare, content);
        }
        self.path.push(frame);
        self.hold(self.path.len().saturating_sub(1), content);
    }

    /// Takes the last object off the path.
    fn leave(&mut self) {
        if let Some(content) = self.path.pop().and_then(|frame| frame.content) {
            self.release(content);
        }
        self.dropped_below = self.dropped_below.min(self.path.len());
    }

    /// Keeps the content of the object at `index` of the path.
    fn hold(&mut self, index: usize, content: Content) {
        let (memory, disk) = content.weight();
        self.held += memory;
        self.spilled += disk;
        if let Some(frame) = self.path.get_mut(index) {
            frame.content = Some(content);
        }
        self.shrink();
    }

    fn release(&mut self, content: Content) {
        let (memory, disk) = content.weight();
        self.held = self.held.saturating_sub(memory);
        self.spilled = self.spilled.saturating_sub(disk);
        reuse(&mut self.spare, content);
    }

    /// Drops content from the start of the path while too much is held; the end stays.
    fn shrink(&mut self) {
        let last = self.path.len().saturating_sub(1);
        let is_too_much =
            |walker: &Self| walker.held > walker.held_max || walker.spilled > walker.limits.spill_bytes_max;
        while is_too_much(self) && self.dropped_below < last {
            let frame = self.path.get_mut(self.dropped_below);
            if let Some(content) = frame.and_then(|frame| frame.content.take()) {
                self.release(content);
            }
            self.dropped_below += 1;
        }
    }

    /// Makes sure that the object at `index` of the path has its content.
    fn fill(&mut self, index: usize) -> Result<(), IntakeError> {
        if self.path.get(index).is_some_and(|frame| frame.held().is_some()) {
            return Ok(());
        }
        let before = self.path.get(..index).unwrap_or_default();
        let from = before.iter().rposition(|frame| frame.held().is_some());
        let mut maker = Maker {
            source: &mut self.source,
            limits: self.limits,
            delta: &mut self.delta,
            spare: &mut self.spare,
        };
        let mut content = None;
        for at in from.map_or(0, |from| from + 1)..=index {
            let Some((At::Entry(entry), kind)) = self.path.get(at).map(|frame| (frame.at.clone(), frame.kind)) else {
                return Err(IntakeError::Internal("the path has a hole"));
            };
            if at == 0 {
                content = Some(maker.whole(entry, kind)?);
                continue;
            }
            let base = match (&content, self.path.get(at - 1)) {
                (Some(content), _) => Some(Content::by_ref(content)),
                (None, frame) => frame.and_then(Frame::held),
            };
            let base = base.ok_or(IntakeError::Internal("a base has no content"))?;
            let (result, _) = maker.apply(entry, kind, base)?;
            if let Some(done) = content.replace(result) {
                reuse(maker.spare, done);
            }
        }
        let content = content.ok_or(IntakeError::Internal("the path has a hole"))?;
        self.dropped_below = self.dropped_below.min(index);
        self.hold(index, content);
        Ok(())
    }
}

impl Frame {
    /// The content, unless it was dropped.
    fn held(&self) -> Option<ContentRef<'_>> {
        match (&self.content, &self.at) {
            (Some(content), _) => Some(content.by_ref()),
            (None, At::Outside(content)) => Some(ContentRef::Memory(content)),
            (None, At::Entry(_)) => None,
        }
    }
}

/// Makes contents, with buffers to be used again.
struct Maker<'w, 'a> {
    source: &'w mut EntrySource<'a>,
    limits: &'a ReceiveOptions,
    delta: &'w mut Vec<u8>,
    spare: &'w mut Vec<Vec<u8>>,
}

impl Maker<'_, '_> {
    fn whole(&mut self, entry: u32, kind: ObjectKind) -> Result<Content, IntakeError> {
        if large::is_large(self.source.entries(), entry, kind, self.limits) {
            return large::whole(self.source, entry, self.limits);
        }
        let mut content = self.spare.pop().unwrap_or_default();
        self.source.inflate(entry, &mut content)?;
        Ok(Content::Memory(content))
    }

    /// Applies an entry's delta to its base. What was not held whole comes with its id.
    fn apply(
        &mut self,
        entry: u32,
        kind: ObjectKind,
        base: ContentRef<'_>,
    ) -> Result<(Content, Option<ObjectId>), IntakeError> {
        let entries = self.source.entries();
        let base = match base {
            ContentRef::Memory(base) if !large::is_large(entries, entry, kind, self.limits) => base,
            _ => {
                let (content, oid) = large::apply(self.source, entry, base, self.limits)?;
                return Ok((content, Some(oid)));
            }
        };
        if kind != ObjectKind::Blob {
            self.check_structure(entry, kind)?;
        }
        self.source.inflate(entry, self.delta)?;
        let mut content = self.spare.pop().unwrap_or_default();
        let applied = delta::apply_into(base, self.delta, &mut content);
        applied.map_err(|error| entries.fault(entry, ObjectFault::Delta(error.to_string())))?;
        Ok((Content::Memory(content), None))
    }

    /// Neither the delta of a commit, tree or tag nor what comes out may be larger than what is held.
    fn check_structure(&mut self, entry: u32, kind: ObjectKind) -> Result<(), IntakeError> {
        let entries = self.source.entries();
        let size_max = self.limits.structure_bytes_max;
        if !entries.is_large_delta(entry) && self.limits.held_object_bytes_max <= size_max {
            return Ok(());
        }
        let size = self.source.delta_size_max(entry)?;
        if size > size_max {
            let what = kind.name();
            return Err(entries
                .fault(entry, ObjectFault::TooLarge { what, size, size_max })
                .into());
        }
        Ok(())
    }
}

/// Keeps a few small buffers for later.
fn reuse(spare: &mut Vec<Vec<u8>>, content: Content) {
    const SPARE_MAX: usize = 8;
    const SPARE_LEN_MAX: usize = 1 << 20;
    let Content::Memory(buffer) = content else { return };
    if spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_LEN_MAX {
        spare.push(buffer);
    }
}
