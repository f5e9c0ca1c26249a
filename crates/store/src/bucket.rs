//! A bucket: keys and payloads over `object_store`, with conditional writes whose outcome is always told truly, exact
//! ranges, and every request counted.

use crate::buffers::Buffers;
use crate::counters::{Counters, Meter, Operation};
use crate::error::{Result, StoreError, StoreErrorKind, is_past_end};
use crate::local::LocalFiles;
use crate::options::{self, BucketOptions};
use crate::upload::Upload;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A handle to a bucket. Clones share the connection pool, the limits and the counters.
///
/// Keys are `/`-separated segments, none of them empty, `.` or `..`. Payloads are immutable by convention, except for those
/// written with [`put`](Self::put) or [`swap`](Self::swap), which must be read with [`get`](Self::get): ranged reads of a
/// local directory may keep the file they first opened.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    name: String,
    handles: Handles,
    meter: Meter,
    requests: Semaphore,
    part_bytes: usize,
    upload_parts_max: usize,
    buffers: Buffers,
}

/// The stores behind a bucket.
pub(crate) struct Handles {
    store: Arc<dyn ObjectStore>,
    /// For conditional writes: makes no retries of its own.
    conditional: Arc<dyn ObjectStore>,
    local: Option<Arc<LocalFiles>>,
    /// Makes URLs for others to read by, and the prefix of keys in them.
    signer: Option<(Arc<dyn Signer>, Path)>,
}

/// What came of writing a payload where there should be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// The payload is ours, and durable.
    Done,
    /// The key holds a payload that is not ours. Read it to know.
    Exists,
}

/// What came of replacing a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Swapped {
    /// The payload is ours, and durable; its version is this.
    Done(Version),
    /// The key did not hold the expected version (or, with none expected, held a payload). Read it again.
    Stale,
}

/// Which write a payload came from, as the store tells it (etag, generation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(UpdateVersion);

/// A key met by [`Bucket::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The key, relative to the bucket's prefix.
    pub key: String,
    /// Bytes of its payload.
    pub size: u64,
    /// When it was written, milliseconds since the Unix epoch, by the store's clock.
    pub modified_ms: i64,
}

impl Handles {
    pub(crate) fn remote(store: Arc<dyn ObjectStore>, conditional: Option<Arc<dyn ObjectStore>>) -> Self {
        let conditional = conditional.unwrap_or_else(|| Arc::clone(&store));
        Self {
            store,
            conditional,
            local: None,
            signer: None,
        }
    }

    pub(crate) fn with_signer(self, signer: Arc<dyn Signer>, prefix: Path) -> Self {
        Self {
            signer: Some((signer, prefix)),
            ..self
        }
    }

    pub(crate) fn local(path: &str, options: &BucketOptions) -> Result<Self> {
        let files = LocalFiles::open(path, options.sync).map_err(|error| StoreError::BadBucket {
            url: path.to_owned(),
            reason: error.to_string(),
        })?;
        let store: Arc<dyn ObjectStore> = Arc::new(files.store());
        Ok(Self {
            conditional: Arc::clone(&store),
            store,
            local: Some(Arc::new(files)),
            signer: None,
        })
    }
}

impl Bucket {
    /// Opens the bucket that `url` names: a plain path or `file://` (a local directory, made if absent), `s3://bucket/prefix`,
    /// `gs://bucket/prefix`, `az://container/prefix`, or `memory:` (a new empty bucket that lives as long as its handles).
    ///
    /// Makes no request to a remote store: [`Bucket::probe`] does. Blocks on the file system for local directories.
    pub fn open(url: &str, options: &BucketOptions) -> Result<Self> {
        Ok(Self::new(url.to_owned(), options::open(url, options)?, options))
    }

    /// A bucket over a given store: for tests and simulations that bring their own. Retries are the store's affair, but
    /// conditional writes are looked up and tried again as for any bucket.
    pub fn from_store(name: &str, store: Arc<dyn ObjectStore>, options: &BucketOptions) -> Self {
        Self::new(name.to_owned(), Handles::remote(store, None), options)
    }

    fn new(name: String, handles: Handles, options: &BucketOptions) -> Self {
        let local = handles.local.as_ref();
        Self(Arc::new(Inner {
            name,
            buffers: local.map(|files| files.buffers().clone()).unwrap_or_default(),
            handles,
            meter: Meter::default(),
            requests: Semaphore::new(options.requests_max.clamp(1, Semaphore::MAX_PERMITS)),
            part_bytes: options.part_bytes.max(1),
            upload_parts_max: options.upload_parts_max.max(1),
        }))
    }

    /// Memory for large payloads on their way in or out.
    pub fn buffers(&self) -> &Buffers {
        &self.0.buffers
    }

    /// The address it was opened with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is a directory of this machine, which the operating system caches already.
    pub fn is_local(&self) -> bool {
        self.0.handles.local.is_some()
    }

    /// What has been asked of it through this handle and its clones.
    pub fn counters(&self) -> Counters {
        self.0.meter.snapshot()
    }

    /// Writes `payload` if the key holds nothing. One request, unless the answer is unclear or another writer was there: then
    /// the key is read and compared, so payloads that race for one key must differ in some byte (an id) to be told apart.
    ///
    /// Once `Done`, the payload is durable. An error of kind `Unavailable` means that it may be there or may yet appear.
    pub async fn create(&self, key: &str, payload: Bytes) -> Result<Created> {
        let path = parse_key(key)?;
        self.prepare(Operation::Create, key, &path).await?;
        let mut unclear = false;
        for attempt in 0.. {
            let error = match self
                .put_if(Operation::Create, key, &path, &payload, PutMode::Create)
                .await
            {
                Ok(_) => return Ok(Created::Done),
                Err(error) => error,
            };
            // A clear answer to a first try. A 409 is not: S3 sends it when writers merely met, and then neither may have won.
            if !unclear && is_precondition(&error) {
                return Ok(Created::Exists);
            }
            let error = StoreError::from_backend(Operation::Create, key, error);
            if !matches!(error.kind(), StoreErrorKind::Conflict | StoreErrorKind::Unavailable) {
                return Err(error);
            }
            unclear = true;
            match self.stored(key, payload.len()).await? {
                Some(stored) if stored == payload => return Ok(Created::Done),
                Some(_) => return Ok(Created::Exists),
                None if attempt + 1 >= CONDITIONAL_ATTEMPTS_MAX => return Err(error),
                None => tokio::time::sleep(pause(attempt)).await,
            }
        }
        Err(StoreError::Unknown { key: key.to_owned() })
    }

    /// Writes a payload whose key nobody else will choose (a layer). Also succeeds if it is there already, byte for byte.
    ///
    /// Fails with kind `Conflict` if the key holds anything else.
    pub async fn create_payload(&self, key: &str, payload: Bytes) -> Result<()> {
        match self.create(key, payload.clone()).await? {
            Created::Done => Ok(()),
            Created::Exists => match self.stored(key, payload.len()).await? {
                Some(stored) if stored == payload => Ok(()),
                _ => Err(StoreError::Differs { key: key.to_owned() }),
            },
        }
    }

    /// A URL by which anyone can read the payload at `key`, and do nothing else, for that long; `None` where the store has no
    /// such URLs (local directories, memory). No request to the store for most credentials; no look at the key.
    pub async fn signed_url(&self, key: &str, lifetime: Duration) -> Result<Option<String>> {
        let Some((signer, prefix)) = &self.0.handles.signer else {
            return Ok(None);
        };
        let path: Path = prefix.parts().chain(parse_key(key)?.parts()).collect();
        match signer.signed_url(Method::GET, &path, lifetime).await {
            Ok(url) => Ok(Some(url.to_string())),
            Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => Ok(None),
            Err(error) => Err(StoreError::from_backend(Operation::Get, key, error)),
        }
    }

    /// Writes `payload`, whatever was there. Only for keys with one writer.
    pub async fn put(&self, key: &str, payload: Bytes) -> Result<()> {
        let path = parse_key(key)?;
        self.prepare(Operation::Put, key, &path).await?;
        let write = self.0.handles.store.put(&path, payload.clone().into());
        let written = self.request(Operation::Put, key, payload.len(), write).await;
        self.forget(key);
        written.map(|_| ())
    }

    /// Replaces the payload if it is still `expected`; `None` expects that there is none. Fails with kind `Invalid` on stores
    /// that cannot (local directories).
    ///
    /// Payloads must differ from every other that this key has held (an id or a number in each): an unclear answer is
    /// resolved by reading, and versions may be digests of the content. Fails with [`StoreError::Unknown`] if our payload may
    /// have been stored and replaced again: look for its effect in the one that is there.
    pub async fn swap(&self, key: &str, expected: Option<&Version>, payload: Bytes) -> Result<Swapped> {
        let path = parse_key(key)?;
        self.prepare(Operation::Swap, key, &path).await?;
        let mode = expected.map_or(PutMode::Create, |version| PutMode::Update(version.0.clone()));
        let mut unclear = false;
        for attempt in 0.. {
            let error = match self.put_if(Operation::Swap, key, &path, &payload, mode.clone()).await {
                Ok(version) => return Ok(Swapped::Done(Version(version))),
                Err(error) => error,
            };
            if !unclear && is_precondition(&error) {
                return Ok(Swapped::Stale);
            }
            let error = StoreError::from_backend(Operation::Swap, key, error);
            if !matches!(error.kind(), StoreErrorKind::Conflict | StoreErrorKind::Unavailable) {
                return Err(error);
            }
            // A conflict, even unclear about who won, says that this try of ours was refused; a lost answer does not.
            unclear |= error.kind() == StoreErrorKind::Unavailable;
            match self.get_version(key).await? {
                Some((stored, version)) if stored == payload => return Ok(Swapped::Done(version)),
                stored if stored.as_ref().map(|(_, version)| version) != expected => {
                    return match unclear {
                        false => Ok(Swapped::Stale),
                        true => Err(StoreError::Unknown { key: key.to_owned() }),
                    };
                }
                _ if attempt + 1 >= CONDITIONAL_ATTEMPTS_MAX => return Err(error),
                _ => tokio::time::sleep(pause(attempt)).await,
            }
        }
        Err(StoreError::Unknown { key: key.to_owned() })
    }

    /// The whole payload; kind `NotFound` if there is none.
    pub async fn get(&self, key: &str) -> Result<Bytes> {
        let found = self.get_version(key).await?;
        found
            .map(|(payload, _)| payload)
            .ok_or_else(|| StoreError::Absent { key: key.to_owned() })
    }

    /// The whole payload with the version to [`swap`](Self::swap) it by, or `None`.
    pub async fn get_version(&self, key: &str) -> Result<Option<(Bytes, Version)>> {
        let path = parse_key(key)?;
        let read = async {
            let result = self.0.handles.store.get(&path).await?;
            let version = UpdateVersion {
                e_tag: result.meta.e_tag.clone(),
                version: result.meta.version.clone(),
            };
            Ok((result.bytes().await?, Version(version)))
        };
        let found = absent_as_none(self.request(Operation::Get, key, 0, read).await)?;
        if let Some((payload, _)) = &found {
            self.0.meter.received(Operation::Get, payload.len());
        }
        Ok(found)
    }

    /// Exactly the bytes of `range`; kind `NotFound` without a payload, an error if it ends before the range does.
    /// An empty range costs no request.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(files) = self.0.handles.local.clone() {
            let mut pieces = self.read_files(files, key, &[range]).await?;
            return pieces.pop().ok_or_else(|| StoreError::Absent { key: key.to_owned() });
        }
        let path = parse_key(key)?;
        // Azure has no suffix ranges: every range is absolute.
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let read = async { self.0.handles.store.get_opts(&path, options).await?.bytes().await };
        let (offset, expected) = (range.start, range.end - range.start);
        let short = |got| StoreError::Short {
            key: key.to_owned(),
            offset,
            expected,
            got,
        };
        let bytes = match self.counted(Operation::GetRange, key, 0, read).await? {
            Ok(bytes) => bytes,
            Err(error) if is_past_end(&error) => return Err(short(0)),
            Err(error) => return Err(StoreError::from_backend(Operation::GetRange, key, error)),
        };
        self.0.meter.received(Operation::GetRange, bytes.len());
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => Err(short(bytes.len() as u64)),
        }
    }

    /// The bytes of each range, in the order given. Remote stores: one request for each, a few at once; a local directory:
    /// one hop to a blocking thread for all.
    pub async fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let Some(files) = self.0.handles.local.clone() else {
            let reads = ranges.iter().cloned().map(|range| self.get_range(key, range));
            return futures::stream::iter(reads)
                .buffered(RANGES_AT_ONCE)
                .try_collect()
                .await;
        };
        self.read_files(files, key, ranges).await
    }

    /// Ranges of a file, read in one hop to a blocking thread.
    async fn read_files(&self, files: Arc<LocalFiles>, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = parse_key(key)?;
        let (owned_key, owned_ranges) = (key.to_owned(), ranges.to_vec());
        let permit = self.permit(key).await?;
        self.0.meter.request(Operation::GetRange, 0);
        let read = blocking(move || files.read(&owned_key, &path, &owned_ranges)).await;
        drop(permit);
        self.read_ended(read.as_ref().map(|pieces| pieces.iter().map(Bytes::len).sum()));
        read
    }

    /// As [`get_range`](Self::get_range), for bytes that nobody is about to ask for again: a local directory reads them past
    /// the operating system's page cache.
    pub async fn get_range_once(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let Some(files) = self.0.handles.local.clone().filter(|_| !range.is_empty()) else {
            return self.get_range(key, range).await;
        };
        let path = parse_key(key)?;
        let owned_key = key.to_owned();
        let permit = self.permit(key).await?;
        self.0.meter.request(Operation::GetRange, 0);
        let read = blocking(move || files.read_once(&owned_key, &path, &range)).await;
        drop(permit);
        self.read_ended(read.as_ref().map(Bytes::len));
        read
    }

    /// A range of the payload to be held for long: memory that is the file's own, so that the operating system can take it back.
    /// `None` where the bucket is no local directory. Counted as a read of all of it.
    pub async fn map(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let mapped = self.map_ranges(key, &[range]).await?;
        Ok(mapped.and_then(|mut mapped| mapped.pop()))
    }

    /// The same for several ranges, in one hop to a blocking thread.
    pub async fn map_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let Some(files) = self.0.handles.local.clone() else {
            return Ok(None);
        };
        let path = parse_key(key)?;
        let (owned_key, owned_ranges) = (key.to_owned(), ranges.to_vec());
        let permit = self.permit(key).await?;
        self.0.meter.request(Operation::GetRange, 0);
        let map = move || {
            owned_ranges
                .iter()
                .map(|range| files.map(&owned_key, &path, range))
                .collect()
        };
        let mapped: Result<Vec<Bytes>> = blocking(map).await;
        drop(permit);
        self.read_ended(mapped.as_ref().map(|pieces| pieces.iter().map(Bytes::len).sum()));
        mapped.map(Some)
    }

    /// Counts what came of reading files.
    fn read_ended(&self, read: std::result::Result<usize, &StoreError>) {
        match read {
            Ok(bytes) => self.0.meter.received(Operation::GetRange, bytes),
            Err(error) if error.kind() == StoreErrorKind::NotFound => {}
            Err(_) => self.0.meter.failed(Operation::GetRange),
        }
    }

    /// Bytes of the payload, or `None`.
    pub async fn size(&self, key: &str) -> Result<Option<u64>> {
        let path = parse_key(key)?;
        let read = self.0.handles.store.head(&path);
        let found = absent_as_none(self.request(Operation::Head, key, 0, read).await)?;
        Ok(found.map(|meta| meta.size))
    }

    /// Removes the payload. Succeeds if there is none.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let path = parse_key(key)?;
        self.forget(key);
        let delete = self.0.handles.store.delete(&path);
        absent_as_none(self.request(Operation::Delete, key, 0, delete).await)?;
        self.forget(key);
        Ok(())
    }

    /// The keys under `prefix` (whole segments; empty for all), in no particular order. Counts as one request, however many
    /// pages it takes. For repair and collection only: nothing is decided by a listing alone.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let path = match Path::parse(prefix) {
            Ok(path) => path,
            Err(error) => {
                let error = StoreError::BadKey {
                    key: prefix.to_owned(),
                    reason: error.to_string(),
                };
                return futures::stream::once(async { Err(error) }).boxed();
            }
        };
        let (bucket, prefix) = (self.clone(), prefix.to_owned());
        self.0.meter.request(Operation::List, 0);
        let keys = self.0.handles.store.list(Some(&path));
        let listed = keys.map(move |meta| match meta {
            Ok(meta) => Ok(Listed {
                key: meta.location.to_string(),
                size: meta.size,
                modified_ms: meta.last_modified.timestamp_millis(),
            }),
            Err(error) => {
                bucket.0.meter.failed(Operation::List);
                Err(StoreError::from_backend(Operation::List, &prefix, error))
            }
        });
        listed.boxed()
    }

    /// All of [`list`](Self::list) in memory, sorted: for prefixes known to hold few keys.
    pub async fn list_all(&self, prefix: &str) -> Result<Vec<Listed>> {
        let mut keys: Vec<Listed> = self.list(prefix).try_collect().await?;
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(keys)
    }

    /// Starts writing a payload of unknown size under a key that nobody else will choose. Nothing is visible before
    /// [`Upload::finish`].
    pub fn upload(&self, key: &str) -> Result<Upload> {
        self.upload_in_parts(key, self.0.part_bytes)
    }

    /// As [`upload`](Self::upload), for bytes that nobody is about to read: a local directory takes them past the operating
    /// system's page cache.
    pub fn upload_once(&self, key: &str) -> Result<Upload> {
        Ok(self.upload(key)?.once())
    }

    pub(crate) fn upload_in_parts(&self, key: &str, part_bytes: usize) -> Result<Upload> {
        let path = parse_key(key)?;
        Ok(Upload::new(
            self.clone(),
            key.to_owned(),
            path,
            part_bytes,
            self.0.upload_parts_max,
        ))
    }

    /// Starts an upload of several parts.
    pub(crate) async fn start_upload(&self, key: &str, path: &Path, once: bool) -> Result<Box<dyn MultipartUpload>> {
        self.prepare(Operation::UploadPart, key, path).await?;
        let Some(files) = self.0.handles.local.clone().filter(|_| once) else {
            let start = self.0.handles.store.put_multipart(path);
            return self.request(Operation::UploadPart, key, 0, start).await;
        };
        let permit = self.permit(key).await?;
        self.0.meter.request(Operation::UploadPart, 0);
        let path = path.clone();
        let started = blocking(move || files.upload_once(&path)).await;
        drop(permit);
        match started {
            Ok(upload) => Ok(Box::new(upload)),
            Err(error) => {
                self.0.meter.failed(Operation::UploadPart);
                Err(StoreError::from_io(Operation::UploadPart, key, error))
            }
        }
    }

    pub(crate) fn forget(&self, key: &str) {
        if let Some(files) = &self.0.handles.local {
            files.forget(key);
        }
    }

    /// Runs one request under the limit and counts it.
    pub(crate) async fn request<T>(
        &self,
        operation: Operation,
        key: &str,
        bytes_out: usize,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let answer = self.counted(operation, key, bytes_out, request).await?;
        answer.map_err(|error| StoreError::from_backend(operation, key, error))
    }

    /// As [`request`](Self::request), with the store's own error inside.
    async fn counted<T>(
        &self,
        operation: Operation,
        key: &str,
        bytes_out: usize,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<object_store::Result<T>> {
        let _permit = self.permit(key).await?;
        self.0.meter.request(operation, bytes_out);
        let answer = request.await;
        if answer.as_ref().is_err_and(is_failure) {
            self.0.meter.failed(operation);
        }
        Ok(answer)
    }

    async fn permit(&self, key: &str) -> Result<SemaphorePermit<'_>> {
        // The semaphore is never closed; were it, no request would be the right answer.
        self.0
            .requests
            .acquire()
            .await
            .map_err(|_| StoreError::Unknown { key: key.to_owned() })
    }

    /// One try of a conditional write.
    async fn put_if(
        &self,
        operation: Operation,
        key: &str,
        path: &Path,
        payload: &Bytes,
        mode: PutMode,
    ) -> object_store::Result<UpdateVersion> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let write = self
            .0
            .handles
            .conditional
            .put_opts(path, payload.clone().into(), options);
        let answer = self.counted(operation, key, payload.len(), write).await;
        self.forget(key);
        match answer {
            Ok(answer) => answer.map(UpdateVersion::from),
            Err(error) => Err(object_store::Error::Generic {
                store: "bucket",
                source: Box::new(error),
            }),
        }
    }

    /// The payload if it is of this size, a stand-in of no bytes if of another, `None` if there is none.
    async fn stored(&self, key: &str, size: usize) -> Result<Option<Bytes>> {
        if size > COMPARE_BY_SIZE_FIRST_BYTES {
            match self.size(key).await? {
                None => return Ok(None),
                Some(stored) if stored != size as u64 => return Ok(Some(Bytes::new())),
                Some(_) => {}
            }
        }
        Ok(self.get_version(key).await?.map(|(payload, _)| payload))
    }

    pub(crate) async fn prepare(&self, operation: Operation, key: &str, path: &Path) -> Result<()> {
        let Some(files) = self.0.handles.local.clone() else {
            return Ok(());
        };
        let path = path.clone();
        let prepared = blocking(move || files.prepare(&path)).await;
        prepared.map_err(|error| match StoreError::from_io(operation, key, error) {
            // Not the payload but its directory is absent.
            StoreError::Absent { key } => StoreError::BadKey {
                key,
                reason: "its directory vanished".to_owned(),
            },
            error => error,
        })
    }
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bucket").field(&self.0.name).finish()
    }
}

/// Runs blocking file system work on the runtime's pool, or at once outside a runtime.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => crate::Workers::Pool(handle).run(work).await,
        Err(_) => work(),
    }
}

fn parse_key(key: &str) -> Result<Path> {
    let bad = |reason: String| StoreError::BadKey {
        key: key.to_owned(),
        reason,
    };
    if key.is_empty() || key.starts_with('/') || key.ends_with('/') {
        return Err(bad("it must be neither empty nor begin or end with a slash".to_owned()));
    }
    Path::parse(key).map_err(|error| bad(error.to_string()))
}

fn absent_as_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an answer counts as a failure, and not as news about the key.
fn is_failure(error: &object_store::Error) -> bool {
    use object_store::Error;
    !matches!(
        error,
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. }
    )
}

/// Whether the store said plainly that the condition did not hold (412, or a local file in the way), as opposed to 409.
fn is_precondition(error: &object_store::Error) -> bool {
    use object_store::Error;
    match error {
        Error::Precondition { .. } => true,
        // The S3 client wraps a 412 or 304 in this, but maps a 409 to it directly: then its words give the status.
        Error::AlreadyExists { source, .. } => {
            let words = source.to_string();
            // Azure has 409 for both, and a code of its own for a blob that is there.
            !words.contains("status code: 409") || words.contains("BlobAlreadyExists")
        }
        _ => false,
    }
}

/// Time before the next try of a conditional write: 50 ms, doubling.
fn pause(attempt: u32) -> Duration {
    PAUSE * 2u32.saturating_pow(attempt.min(5))
}

const CONDITIONAL_ATTEMPTS_MAX: u32 = 6;
const PAUSE: Duration = Duration::from_millis(50);
const RANGES_AT_ONCE: usize = 8;
const COMPARE_BY_SIZE_FIRST_BYTES: usize = 64 << 10;
