//! From the walk to the sink: contents are read in batches, converted and written off the reactor, large ones streamed.

use super::facts;
use super::missing;
use super::sink::Sink;
use super::walk::{Item, SelectedWalk};
use super::{ArchivePiece, ArchiveRequest};
use crate::{EngineError, View};
use bytes::Bytes;
use cuesta_git::pretty::Facts;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;

/// Contents of a batch together; files are streamed from this size on.
const BATCH_BYTES_MAX: u64 = 2 << 20;
const BATCH_ITEMS_MAX: usize = 512;
/// Content that is changed on the way (line ends, `$Id$`, `$Format$`) is held whole, up to this.
const CHANGED_BYTES_MAX: u64 = 64 << 20;
/// From this size on git changes no line ends (`core.bigFileThreshold`).
const UNCHANGED_BYTES_MIN: u64 = 512 << 20;

/// An archive in the making.
pub(super) struct Archiver {
    view: View,
    walk: SelectedWalk,
    request: ArchiveRequest,
    sink: Sink,
    facts: Option<Arc<Facts>>,
    /// Taken from the walk, not yet written.
    next: Option<(Item, u64)>,
    stage: Stage,
}

enum Stage {
    Prefix,
    Items,
    /// A large file, whose content is on its way.
    Content(BoxStream<'static, Result<Bytes, EngineError>>),
    End,
}

/// Pieces that are ready together, and the archiver that makes the next.
type Ready = Option<(Vec<ArchivePiece>, Archiver)>;

impl Archiver {
    pub(super) fn new(view: View, walk: SelectedWalk, request: ArchiveRequest) -> Self {
        let sink = Sink::new(&request);
        Self {
            view,
            walk,
            request,
            sink,
            facts: None,
            next: None,
            stage: Stage::Prefix,
        }
    }

    pub(super) async fn next(mut self) -> Result<Ready, EngineError> {
        match std::mem::replace(&mut self.stage, Stage::Items) {
            Stage::Prefix => {
                let path = self.sink.prefix_directory(&self.request.target.tree)?;
                let pieces = self.tell(path);
                Ok(Some((pieces, self)))
            }
            Stage::Items => self.batch().await,
            Stage::Content(content) => self.content(content).await,
            Stage::End => Ok(None),
        }
    }

    /// Reads and writes the next files; begins a large one; or ends.
    async fn batch(mut self) -> Result<Ready, EngineError> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < BATCH_ITEMS_MAX && bytes < BATCH_BYTES_MAX {
            let Some((item, size)) = self.take().await? else { break };
            if self.is_streamed(&item, size)? {
                if items.is_empty() {
                    return self.begin(item, size).await;
                }
                self.next = Some((item, size));
                break;
            }
            // A large one that has to be held comes alone.
            if bytes > 0 && bytes + size > BATCH_BYTES_MAX {
                self.next = Some((item, size));
                break;
            }
            bytes += size;
            items.push(item);
        }
        if items.is_empty() {
            self.stage = Stage::End;
            return self.on_worker(Vec::new(), |sink| sink.end()).await;
        }
        if items.iter().any(|item| item.substitute) {
            self.learn_facts().await?;
        }
        let wanted: Vec<_> = items
            .iter()
            .filter(|item| item.mode.is_blob())
            .map(|item| item.oid)
            .collect();
        let mut contents = self.view.objects(&wanted).await?.into_iter();
        let paths = items.iter().map(|item| self.sink.path(item)).collect::<Vec<_>>();
        let pieces = self.tell(paths);
        let facts = self.facts.clone();
        let write = move |sink: &mut Sink| {
            for item in &items {
                let content = match item.mode.is_blob() {
                    true => contents.next().flatten().ok_or_else(|| missing(&item.oid))?.1,
                    false => Bytes::new(),
                };
                sink.item(item, &changed(item, content, facts.as_deref())?)?;
            }
            Ok(())
        };
        self.on_worker(pieces, write).await
    }

    /// The next item and the size of its content.
    async fn take(&mut self) -> Result<Option<(Item, u64)>, EngineError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let Some(item) = self.walk.next().await? else {
            return Ok(None);
        };
        if !item.mode.is_blob() {
            return Ok(Some((item, 0)));
        }
        let found = self.view.kind_and_size(&item.oid).await?;
        let (_, size) = found.ok_or_else(|| missing(&item.oid))?;
        Ok(Some((item, size)))
    }

    fn is_streamed(&self, item: &Item, size: u64) -> Result<bool, EngineError> {
        if item.mode.is_symlink() && size > CHANGED_BYTES_MAX {
            return Err(EngineError::limit("bytes of a symbolic link", CHANGED_BYTES_MAX));
        }
        let substituted = item.substitute && self.request.target.commit.is_some();
        let changed = substituted || !item.conversion.is_none() && size < UNCHANGED_BYTES_MIN;
        match changed {
            true if size > CHANGED_BYTES_MAX => {
                Err(EngineError::limit("bytes of a file to be converted", CHANGED_BYTES_MAX))
            }
            true => Ok(false),
            false => Ok(size > BATCH_BYTES_MAX && !item.mode.is_symlink()),
        }
    }

    async fn begin(mut self, item: Item, size: u64) -> Result<Ready, EngineError> {
        let stream = self
            .view
            .object_stream(&item.oid)
            .await?
            .ok_or_else(|| missing(&item.oid))?;
        self.sink.begin(&item, size);
        let pieces = self.tell(Some(self.sink.path(&item)));
        self.stage = Stage::Content(stream.content);
        Ok(Some((pieces, self)))
    }

    async fn content(
        mut self,
        mut content: BoxStream<'static, Result<Bytes, EngineError>>,
    ) -> Result<Ready, EngineError> {
        match content.next().await {
            Some(piece) => {
                let piece = piece?;
                self.stage = Stage::Content(content);
                self.on_worker(Vec::new(), move |sink| sink.piece(&piece)).await
            }
            None => self.on_worker(Vec::new(), |sink| sink.end_file()).await,
        }
    }

    /// Lets `write` work on the sink, and adds what is ready then to `pieces`.
    async fn on_worker(
        mut self,
        mut pieces: Vec<ArchivePiece>,
        write: impl FnOnce(&mut Sink) -> Result<(), EngineError> + Send + 'static,
    ) -> Result<Ready, EngineError> {
        let workers = self.view.world().workers.clone();
        let work = move || {
            let written = write(&mut self.sink).and_then(|()| self.sink.take());
            written.map(|bytes| (bytes, self))
        };
        let (bytes, archiver) = workers.run(work).await?;
        if !bytes.is_empty() {
            pieces.push(ArchivePiece::Data(bytes.into()));
        }
        Ok(Some((pieces, archiver)))
    }

    async fn learn_facts(&mut self) -> Result<(), EngineError> {
        if let (None, Some(commit)) = (&self.facts, &self.request.target.commit) {
            self.facts = Some(Arc::new(facts::of(&self.view, commit, &self.request.hidden).await?));
        }
        Ok(())
    }

    /// The paths, a line each, if they are to be told.
    fn tell(&self, paths: impl IntoIterator<Item = Vec<u8>>) -> Vec<ArchivePiece> {
        if !self.request.verbose {
            return Vec::new();
        }
        let lines: Vec<u8> = paths
            .into_iter()
            .flat_map(|path| [path, b"\n".to_vec()].concat())
            .collect();
        if lines.is_empty() {
            Vec::new()
        } else {
            vec![ArchivePiece::Paths(lines.into())]
        }
    }
}

/// The content as it goes into the archive.
fn changed(item: &Item, content: Bytes, facts: Option<&Facts>) -> Result<Bytes, EngineError> {
    let size_max = usize::try_from(CHANGED_BYTES_MAX).unwrap_or(usize::MAX);
    let mut content = content;
    if let Some(converted) = item.conversion.apply(&item.oid, &content) {
        content = converted.into();
    }
    if let (true, Some(facts)) = (item.substitute, facts) {
        let substituted = facts.substitute(&content, size_max);
        let substituted =
            substituted.map_err(|error| EngineError::Refused(format!("a file with export-subst {error}")))?;
        content = substituted.map_or(content, Bytes::from);
    }
    Ok(content)
}
