//! Deltas resolved: every object of the push gets its kind, size and id, and is looked at.
//!
//! From each base outwards, depth first and without recursion, as `git index-pack` does it. A thread holds the objects
//! on its path that still have deltas to come; past the memory bound the oldest are dropped and made again when needed.

use super::entries::{Entries, Stored};
use super::error::{IntakeError, ObjectFault, PackFault};
use super::inspect::{Inspector, Refused};
use super::known::Known;
use super::options::IntakeOptions;
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

/// Puts results into the columns; answers how many there are.
fn record(parsed: &mut Parsed, found: Vec<Found>) -> u64 {
    let mut count = 0;
    for found in found {
        count += found.resolved.len() as u64;
        for resolved in found.resolved {
            parsed
                .entries
                .resolve(resolved.entry, resolved.kind, resolved.size, &resolved.oid);
            if let Some(base) = resolved.base {
                parsed.entries.rebase(resolved.entry, base);
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
    inspector: Inspector,
}

struct Resolved {
    entry: u32,
    kind: ObjectKind,
    size: u64,
    oid: ObjectId,
    /// The entry it was resolved against.
    base: Option<u32>,
}

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
    object_bytes_max: u64,
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
    content: Option<Vec<u8>>,
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
        options: &IntakeOptions,
        threads: usize,
    ) -> Self {
        Self {
            entries,
            deltas,
            source: EntrySource::new(spool, entries),
            found: Found {
                resolved: Vec::new(),
                inspector: Inspector::new(entries.format(), options.fsck.clone()),
            },
            path: Vec::new(),
            held: 0,
            held_max: options.limits.base_bytes_max / threads,
            object_bytes_max: options.limits.held_object_bytes_max,
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
                self.check_base_size(*entry)?;
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

    fn check_base_size(&self, entry: u32) -> Result<(), IntakeError> {
        let (size, size_max) = (self.entries.size(entry), self.object_bytes_max);
        if size > size_max {
            let fault = ObjectFault::TooLarge {
                what: "delta base",
                size,
                size_max,
            };
            return Err(self.entries.fault(entry, fault).into());
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
        let (kind, base) = (
            frame.kind,
            if let At::Entry(base) = frame.at {
                Some(base)
            } else {
                None
            },
        );
        let mut content = self.spare.pop().unwrap_or_default();
        self.source.inflate(entry, &mut self.delta)?;
        let base_bytes = match (&frame.content, &frame.at) {
            (Some(bytes), _) => bytes.as_slice(),
            (None, At::Outside(bytes)) => bytes,
            (None, At::Entry(_)) => return Err(IntakeError::Internal("a base has no content")),
        };
        apply(self.entries, entry, base_bytes, &self.delta, &mut content)?;
        let is_last = frame.by_entry.is_empty() && frame.by_name.is_empty();
        if is_last && let Some(done) = frame.content.take() {
            self.held = self.held.saturating_sub(done.len());
            reuse(&mut self.spare, done);
        }
        let oid = self
            .found
            .inspector
            .inspect(entry, kind, &content)
            .map_err(|refused| match refused {
                Refused::Fault(fault) => self.entries.fault(entry, fault),
                Refused::Pack(fault) => fault,
            })?;
        self.found.resolved.push(Resolved {
            entry,
            kind,
            size: content.len() as u64,
            oid,
            base,
        });
        self.enter(entry, kind, &oid, content);
        Ok(())
    }

    /// Makes a resolved object the end of the path, if anything hangs on it.
    fn enter(&mut self, entry: u32, kind: ObjectKind, oid: &ObjectId, content: Vec<u8>) {
        let mut frame = self.frame(At::Entry(entry), kind, oid);
        if frame.by_entry.is_empty() && frame.by_name.is_empty() {
            return reuse(&mut self.spare, content);
        }
        self.held += content.len();
        frame.content = Some(content);
        self.path.push(frame);
        self.shrink();
    }

    /// Takes the last object off the path.
    fn leave(&mut self) {
        if let Some(content) = self.path.pop().and_then(|frame| frame.content) {
            self.held = self.held.saturating_sub(content.len());
            reuse(&mut self.spare, content);
        }
        self.dropped_below = self.dropped_below.min(self.path.len());
    }

    /// Drops content from the start of the path while too much is held; the end stays.
    fn shrink(&mut self) {
        let last = self.path.len().saturating_sub(1);
        while self.held > self.held_max && self.dropped_below < last {
            if let Some(content) = self
                .path
                .get_mut(self.dropped_below)
                .and_then(|frame| frame.content.take())
            {
                self.held = self.held.saturating_sub(content.len());
            }
            self.dropped_below += 1;
        }
    }

    /// Makes sure that the object at `index` of the path has its content.
    fn fill(&mut self, index: usize) -> Result<(), IntakeError> {
        let has_content = |frame: &Frame| frame.content.is_some() || matches!(frame.at, At::Outside(_));
        if self.path.get(index).is_some_and(has_content) {
            return Ok(());
        }
        let before = self.path.get(..index).unwrap_or_default();
        let from = before.iter().rposition(has_content);
        let mut content = self.spare.pop().unwrap_or_default();
        for at in from.map_or(0, |from| from + 1)..=index {
            let Some(At::Entry(entry)) = self.path.get(at).map(|frame| frame.at.clone()) else {
                return Err(IntakeError::Internal("the path has a hole"));
            };
            self.source.inflate(entry, &mut self.delta)?;
            if at == 0 {
                std::mem::swap(&mut content, &mut self.delta);
                continue;
            }
            let mut result = self.spare.pop().unwrap_or_default();
            let base = match self.path.get(at - 1) {
                Some(frame) if Some(at - 1) == from => held_content(frame),
                _ => &content,
            };
            apply(self.entries, entry, base, &self.delta, &mut result)?;
            reuse(&mut self.spare, std::mem::replace(&mut content, result));
        }
        self.held += content.len();
        if let Some(frame) = self.path.get_mut(index) {
            frame.content = Some(content);
        }
        self.dropped_below = self.dropped_below.min(index);
        self.shrink();
        Ok(())
    }
}

fn held_content(frame: &Frame) -> &[u8] {
    match (&frame.content, &frame.at) {
        (Some(content), _) => content,
        (None, At::Outside(content)) => content,
        (None, At::Entry(_)) => &[],
    }
}

fn apply(entries: &Entries, entry: u32, base: &[u8], delta: &[u8], content: &mut Vec<u8>) -> Result<(), IntakeError> {
    let applied = delta::apply_into(base, delta, content);
    applied.map_err(|error| entries.fault(entry, ObjectFault::Delta(error.to_string())).into())
}

/// Keeps a few small buffers for later.
fn reuse(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    const SPARE_MAX: usize = 8;
    const SPARE_LEN_MAX: usize = 1 << 20;
    if spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_LEN_MAX {
        spare.push(buffer);
    }
}
