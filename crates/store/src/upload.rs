//! A payload written in parts.

use crate::bucket::Bucket;
use crate::counters::Operation;
use crate::error::{Result, StoreError};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload};
use tokio::task::JoinSet;

/// A payload on its way into a bucket: [`write`](Self::write) in order, then [`finish`](Self::finish).
///
/// Holds one part in memory and at most the bucket's `upload_parts_max` more in flight; `write` waits beyond that. A payload
/// of less than one part is one conditional put. Dropped unfinished, it is aborted as far as possible; what a store keeps of
/// a lost abort is for its life-cycle rules.
pub struct Upload {
    bucket: Bucket,
    key: String,
    path: Path,
    part_bytes: usize,
    parts_in_flight_max: usize,
    /// Nobody is about to read it.
    once: bool,
    /// The part being filled: pieces as they came, for a copy would cost as much as the rest of an upload to a directory.
    pieces: Vec<Bytes>,
    pieces_bytes: usize,
    size: u64,
    parts: usize,
    multipart: Option<Box<dyn MultipartUpload>>,
    in_flight: JoinSet<Result<()>>,
}

impl Upload {
    pub(crate) fn new(bucket: Bucket, key: String, path: Path, part_bytes: usize, parts_in_flight_max: usize) -> Self {
        Self {
            bucket,
            key,
            path,
            part_bytes,
            parts_in_flight_max,
            once: false,
            pieces: Vec::new(),
            pieces_bytes: 0,
            size: 0,
            parts: 0,
            multipart: None,
            in_flight: JoinSet::new(),
        }
    }

    /// Has a local directory take it past the page cache.
    pub(crate) fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The key being written.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends `bytes`. Waits for earlier parts when too many are in flight; fails if one of them failed.
    ///
    /// After an error, or when the future was dropped before it was done, the upload can only be aborted.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.part_bytes.saturating_sub(self.pieces_bytes);
            let piece = bytes.split_to(room.min(bytes.len()));
            self.pieces_bytes += piece.len();
            self.size = self.size.saturating_add(piece.len() as u64);
            self.pieces.push(piece);
            if self.pieces_bytes >= self.part_bytes {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Makes the payload durable and visible under its key, and gives its size.
    pub async fn finish(mut self) -> Result<u64> {
        if self.multipart.is_none() {
            let payload = match self.pieces.as_slice() {
                [whole] => whole.clone(),
                pieces => Bytes::from(pieces.concat()),
            };
            self.bucket.create_payload(&self.key, payload).await?;
            return Ok(self.size);
        }
        if !self.pieces.is_empty() {
            self.send_part().await?;
        }
        while let Some(part) = self.in_flight.join_next().await {
            self.joined(part)?;
        }
        self.complete().await?;
        self.bucket.forget(&self.key);
        Ok(self.size)
    }

    /// Gives up: nothing becomes visible, and the store is asked to drop the parts.
    pub async fn abort(mut self) -> Result<()> {
        self.in_flight.shutdown().await;
        match self.multipart.take() {
            Some(mut multipart) => {
                self.bucket
                    .request(Operation::UploadPart, &self.key, 0, multipart.abort())
                    .await
            }
            None => Ok(()),
        }
    }

    async fn send_part(&mut self) -> Result<()> {
        if self.parts >= PARTS_MAX {
            let bytes_max = (self.part_bytes as u64).saturating_mul(PARTS_MAX as u64);
            return Err(StoreError::TooLarge {
                key: self.key.clone(),
                bytes_max,
            });
        }
        while self.in_flight.len() >= self.parts_in_flight_max {
            if let Some(part) = self.in_flight.join_next().await {
                self.joined(part)?;
            }
        }
        if self.multipart.is_none() {
            self.multipart = Some(self.bucket.start_upload(&self.key, &self.path, self.once).await?);
        }
        let Some(multipart) = &mut self.multipart else {
            return Ok(());
        };
        let payload: PutPayload = std::mem::take(&mut self.pieces).into_iter().collect();
        let length = std::mem::take(&mut self.pieces_bytes);
        let send = multipart.put_part(payload);
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        self.in_flight
            .spawn(async move { bucket.request(Operation::UploadPart, &key, length, send).await });
        self.parts += 1;
        Ok(())
    }

    fn joined(&self, part: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
        match part {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // Only a runtime that is going away cancels our tasks.
            Err(_) => Err(StoreError::Unknown { key: self.key.clone() }),
        }
    }

    /// Completes the multipart upload. Where the answer was lost, the key is ours alone: a payload of our size is ours.
    async fn complete(&mut self) -> Result<()> {
        let Some(mut multipart) = self.multipart.take() else {
            return Ok(());
        };
        let completed = self
            .bucket
            .request(Operation::UploadPart, &self.key, 0, multipart.complete())
            .await;
        let Err(error) = completed else { return Ok(()) };
        if let Ok(Some(size)) = self.bucket.size(&self.key).await
            && size == self.size
        {
            return Ok(());
        }
        self.multipart = Some(multipart);
        Err(error)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut multipart) = self.multipart.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (bucket, key) = (self.bucket.clone(), std::mem::take(&mut self.key));
        let mut in_flight = std::mem::take(&mut self.in_flight);
        runtime.spawn(async move {
            in_flight.shutdown().await;
            // Best effort: the parts are invisible, and the store's life-cycle rules know what to do with them.
            let _ = bucket.request(Operation::UploadPart, &key, 0, multipart.abort()).await;
        });
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("key", &self.key)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// The most that S3 takes.
const PARTS_MAX: usize = 10_000;
