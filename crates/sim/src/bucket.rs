//! A bucket in memory whose calls fail by plan.

use crate::chaos::Link;
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_store::Clock;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bucket that all nodes share. Its payloads are as old as the simulated clock says.
pub struct SharedBucket {
    store: InMemory,
    clock: Clock,
    written_ms: Mutex<BTreeMap<Path, i64>>,
}

impl SharedBucket {
    /// An empty bucket.
    pub fn new(clock: Clock) -> Self {
        Self {
            store: InMemory::new(),
            clock,
            written_ms: Mutex::default(),
        }
    }

    async fn put(&self, path: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let put = self.store.put_opts(path, payload, opts).await?;
        self.written_ms.lock().insert(path.clone(), self.clock.now_ms());
        Ok(put)
    }

    async fn list(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut keys: Vec<ObjectMeta> = self.store.list(prefix).try_collect().await?;
        keys.sort_by(|one, other| one.location.cmp(&other.location));
        let written_ms = self.written_ms.lock();
        for meta in &mut keys {
            let ms = written_ms.get(&meta.location).copied().unwrap_or(0);
            let ms = u64::try_from(ms).unwrap_or(0);
            meta.last_modified = (std::time::UNIX_EPOCH + Duration::from_millis(ms)).into();
        }
        Ok(keys)
    }
}

/// One node's way to the shared bucket.
pub struct FaultyBucket {
    shared: Arc<SharedBucket>,
    link: Link,
}

impl FaultyBucket {
    /// The bucket `shared`, reached through `link`.
    pub fn new(shared: Arc<SharedBucket>, link: Link) -> Self {
        Self { shared, link }
    }
}

fn fault(what: &'static str) -> object_store::Error {
    object_store::Error::Generic {
        store: "simulated",
        source: what.into(),
    }
}

#[async_trait]
impl ObjectStore for FaultyBucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (shared, path) = (Arc::clone(&self.shared), location.clone());
        let name = format!("put {location} {} {:?}", payload.content_length(), opts.mode);
        let act = async move { shared.put(&path, payload, opts).await };
        self.link.call(name, fault, act).await
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let begin = async { Ok(()) };
        self.link.call(format!("begin {location}"), fault, begin).await?;
        Ok(Box::new(FaultyUpload {
            shared: Arc::clone(&self.shared),
            link: self.link.clone(),
            path: location.clone(),
            parts: Arc::default(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (shared, path) = (Arc::clone(&self.shared), location.clone());
        let verb = if options.head { "head" } else { "get" };
        let name = format!("{verb} {location} {:?}", options.range);
        let act = async move { shared.store.get_opts(&path, options).await };
        self.link.call(name, fault, act).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (shared, link) = (Arc::clone(&self.shared), self.link.clone());
        let delete = move |location: Path| {
            let (shared, link) = (Arc::clone(&shared), link.clone());
            async move {
                let name = format!("delete {location}");
                let act = async move { shared.store.delete(&location).await.map(|()| location) };
                link.call(name, fault, act).await
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (shared, link, prefix) = (Arc::clone(&self.shared), self.link.clone(), prefix.cloned());
        let all = async move {
            let name = format!("list {}", prefix.as_ref().map_or("", Path::as_ref));
            let act = async move { shared.list(prefix.as_ref()).await };
            let keys = link.call(name, fault, act).await?;
            Ok::<_, object_store::Error>(futures::stream::iter(keys).map(Ok))
        };
        futures::stream::once(all).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.shared.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (shared, from, to) = (Arc::clone(&self.shared), from.clone(), to.clone());
        let name = format!("copy {from} {to}");
        let act = async move { shared.store.copy_opts(&from, &to, options).await };
        self.link.call(name, fault, act).await
    }
}

/// A payload in parts: nothing is visible before it is complete.
#[derive(Debug)]
struct FaultyUpload {
    shared: Arc<SharedBucket>,
    link: Link,
    path: Path,
    parts: Arc<Mutex<Vec<Option<PutPayload>>>>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (link, parts, path) = (self.link.clone(), Arc::clone(&self.parts), self.path.clone());
        let number = parts.lock().len();
        parts.lock().push(None);
        Box::pin(async move {
            let act = async move {
                if let Some(slot) = parts.lock().get_mut(number) {
                    *slot = Some(data);
                }
                Ok(())
            };
            link.call(format!("part {path} {number}"), fault, act).await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (shared, path, parts) = (Arc::clone(&self.shared), self.path.clone(), Arc::clone(&self.parts));
        let act = async move {
            let parts = std::mem::take(&mut *parts.lock());
            let all: Option<Vec<PutPayload>> = parts.into_iter().collect();
            let all = all.ok_or_else(|| fault("a part is missing"))?;
            let bytes: Vec<Bytes> = all.into_iter().flatten().collect();
            let payload = bytes.into_iter().collect();
            shared.put(&path, payload, PutOptions::default()).await
        };
        self.link.call(format!("complete {}", self.path), fault, act).await
    }

    async fn abort(&mut self) -> Result<()> {
        let parts = Arc::clone(&self.parts);
        let act = async move {
            parts.lock().clear();
            Ok(())
        };
        self.link.call(format!("abort {}", self.path), fault, act).await
    }
}

impl fmt::Display for FaultyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

impl fmt::Debug for SharedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedBucket")
    }
}

impl fmt::Debug for FaultyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyBucket")
    }
}
