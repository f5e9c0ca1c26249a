//! One production of a pack, for all who ask for it: it is written to a file at its own pace, and each of them reads that at
//! theirs. It ends when the last of them has gone.

use super::entries;
use crate::EngineError;
use crate::upload::Progress;
use crate::upload::stream::PackStream;
use bytes::{Bytes, BytesMut};
use cuesta_store::{Access, BlockCache, Draft, KeptFile, PIECE_BYTES, Workers};
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Answers up to this part of the memory for blocks are kept there like what is read often; larger ones pass through.
const MEMORY_SHARE: u64 = 2;

/// The bytes of a kept file, as many read them: through the memory for blocks.
#[derive(Clone)]
pub(super) struct Source {
    file: Arc<KeptFile>,
    key: Arc<str>,
    cache: BlockCache,
    access: Access,
}

impl Source {
    pub(super) fn new(file: Arc<KeptFile>, cache: &BlockCache, bytes: u64) -> Self {
        Self {
            key: key(&file),
            file,
            access: cache.access(bytes, MEMORY_SHARE),
            cache: cache.clone(),
        }
    }

    /// The whole file, if it is whole.
    pub(super) fn file(&self) -> &Arc<KeptFile> {
        &self.file
    }

    async fn piece(&self, number: u64) -> Result<Bytes, EngineError> {
        let file = Arc::clone(&self.file);
        let read = self
            .cache
            .read_other(&self.key, number, self.access, move || file.piece(number));
        read.await.map_err(|_| damaged())
    }

    /// The pack of a whole file.
    pub(super) fn stream(self, objects: u32) -> PackStream {
        let progress = Progress::of(objects);
        let (told, pieces) = (progress.clone(), self.file.pieces());
        let chunks = futures::stream::iter(0..pieces).then(move |number| {
            let (source, told) = (self.clone(), told.clone());
            async move {
                let piece = source.piece(number).await?;
                told.note(share(objects, number + 1, pieces));
                Ok(piece)
            }
        });
        PackStream::of_chunks(chunks.boxed(), progress)
    }
}

/// Nothing is damaged but what is kept: who asks again is answered anew.
fn damaged() -> EngineError {
    EngineError::Kept(std::io::Error::other("it is damaged"))
}

/// No key of a bucket has a colon at its start. An answer that is made again may have other bytes under the same name.
fn key(file: &KeptFile) -> Arc<str> {
    format!(":answer:{}", file.serial()).into()
}

/// Objects that so many of all pieces stand for.
fn share(objects: u32, pieces: u64, of: u64) -> u64 {
    u64::from(objects)
        .saturating_mul(pieces)
        .checked_div(of)
        .unwrap_or_default()
}

/// A pack being made.
pub(super) struct Production {
    source: Source,
    objects: u32,
    bytes: u64,
    written: watch::Receiver<Written>,
    task: AbortHandle,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
struct Written {
    pieces: u64,
    objects: u64,
    end: Option<Result<(), Arc<EngineError>>>,
}

impl Drop for Production {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Production {
    /// Begins to write `pack`, which goes through about so many `bytes`, on a task of its own.
    pub(super) fn start(
        runtime: &tokio::runtime::Handle,
        pack: PackStream,
        draft: Draft,
        (cache, workers): (&BlockCache, &Workers),
        bytes: u64,
    ) -> Self {
        let source = Source::new(Arc::clone(draft.file()), cache, bytes);
        let (told, written) = watch::channel(Written::default());
        let objects = pack.progress().objects();
        let writing = Writing {
            pack,
            draft,
            source: source.clone(),
            workers: workers.clone(),
            told,
        };
        Self {
            source,
            objects,
            bytes,
            written,
            task: runtime.spawn(writing.run()).abort_handle(),
        }
    }

    /// Whether the writing goes on, so that who comes now may follow: what has ended well is kept, and what has failed is for those who
    /// were there.
    pub(super) fn is_under_way(&self) -> bool {
        self.written.borrow().end.is_none() && self.written.has_changed().is_ok()
    }

    pub(super) fn objects(&self) -> u32 {
        self.objects
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pack, as far as it is written and on as it is.
    pub(super) fn stream(self: Arc<Self>) -> PackStream {
        let progress = Progress::of(self.objects);
        let reading = Reading {
            written: self.written.clone(),
            production: self,
            next: 0,
            progress: progress.clone(),
        };
        PackStream::of_chunks(futures::stream::try_unfold(reading, Reading::next).boxed(), progress)
    }
}

/// One who follows.
struct Reading {
    production: Arc<Production>,
    written: watch::Receiver<Written>,
    next: u64,
    progress: Progress,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, EngineError> {
        loop {
            let written = self.written.borrow_and_update().clone();
            if self.next < written.pieces {
                let piece = self.production.source.piece(self.next).await?;
                self.next += 1;
                self.progress.note(written.objects);
                return Ok(Some((piece, self)));
            }
            match written.end {
                Some(Ok(())) => return Ok(None),
                Some(Err(error)) => return Err(EngineError::Shared(error)),
                None => self.written.changed().await.map_err(|_| EngineError::Stopped)?,
            }
        }
    }
}

/// The task that writes.
struct Writing {
    pack: PackStream,
    draft: Draft,
    source: Source,
    workers: Workers,
    told: watch::Sender<Written>,
}

impl Writing {
    async fn run(self) {
        let told = self.told.clone();
        let ended = self.write().await.map_err(Arc::new);
        told.send_modify(|written| written.end = Some(ended));
    }

    async fn write(mut self) -> Result<(), EngineError> {
        let objects = self.pack.progress();
        let made = self.pack.made();
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        while let Some(mut chunk) = self.pack.try_next().await? {
            while !chunk.is_empty() {
                let room = PIECE_BYTES.saturating_sub(piece.len());
                piece.extend_from_slice(&chunk.split_to(chunk.len().min(room)));
                if piece.len() == PIECE_BYTES {
                    let full = std::mem::replace(&mut piece, BytesMut::with_capacity(PIECE_BYTES));
                    self = self.append(full.freeze(), objects.done()).await?;
                }
            }
        }
        if !piece.is_empty() {
            // It is kept in memory, and may be much shorter than its room.
            self = self.append(Bytes::copy_from_slice(&piece), objects.done()).await?;
        }
        let index = made.get().map(|made| entries::index(made)).unwrap_or_default();
        let draft = self.draft;
        let finish = move || draft.finish(objects.objects().into(), &index);
        // Who follows has all of the pack, whether others will find it or not.
        let _ = self.workers.run(finish).await;
        Ok(())
    }

    async fn append(self, piece: Bytes, objects: u64) -> Result<Self, EngineError> {
        let Self {
            pack,
            mut draft,
            source,
            workers,
            told,
        } = self;
        let stored = piece.clone();
        let append = move || draft.append(&stored).map(|()| draft);
        let draft = workers.run(append).await.map_err(EngineError::Kept)?;
        let number = draft.file().pieces().saturating_sub(1);
        source.cache.put_other(&source.key, number, Access::Scan, piece);
        told.send_modify(|written| {
            written.pieces = number + 1;
            written.objects = objects;
        });
        Ok(Self {
            pack,
            draft,
            source,
            workers,
            told,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::UnderWay;
    use super::*;
    use cuesta_store::{Bucket, BucketOptions, CacheOptions, KeptFiles, KeptName};

    const NAME: KeptName = KeptName {
        family: [1; 8],
        digest: [2; 32],
    };

    /// Whether one whose pack is so can be joined when it has ended, while somebody still reads it.
    async fn is_joined_after(chunks: Vec<Result<Bytes, EngineError>>) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let files = KeptFiles::open(directory.path(), 1 << 20).unwrap();
        let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
        let cache = BlockCache::new(bucket, CacheOptions::default()).unwrap();
        let runtime = tokio::runtime::Handle::current();
        let (pack, draft) = (
            PackStream::of_chunks(futures::stream::iter(chunks).boxed(), Progress::of(1)),
            files.begin(NAME, 100).unwrap(),
        );
        let workers = Workers::Pool(runtime.clone());
        let production = Arc::new(Production::start(&runtime, pack, draft, (&cache, &workers), 100));
        let mut under_way = UnderWay::default();
        under_way.productions.insert(NAME, Arc::downgrade(&production));
        let _reader = Arc::clone(&production).stream();
        let mut written = production.written.clone();
        let ended = written.wait_for(|written| written.end.is_some()).await.is_ok();
        assert!(ended);
        under_way.production(&NAME).is_some()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_has_failed_is_not_joined() {
        assert!(!is_joined_after(vec![Ok(Bytes::from_static(b"PACK")), Err(EngineError::Stopped)]).await);
        // What has ended well is found on disk.
        assert!(!is_joined_after(vec![Ok(Bytes::from_static(b"PACK"))]).await);
    }
}
