//! Conditional writes whose answer is lost, or whose first try was refused by accident, are told truly all the same.

use async_trait::async_trait;
use bytes::Bytes;
use cuesta_store::{Bucket, BucketOptions, Created, StoreError, StoreErrorKind, Swapped};
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// What happens to one write.
#[derive(Debug, Clone)]
enum Fate {
    /// It takes place, but the answer does not arrive.
    ReplyLost,
    /// It does not take place, and no answer arrives.
    RequestLost,
    /// 409: writers met, nobody is told who won, and here it was not us.
    Met,
    /// It takes place, the answer is lost, and another writer replaces it at once.
    ReplyLostAndReplaced(&'static str),
}

/// A store in memory that deals out one fate for each write, last first, and then behaves.
#[derive(Debug, Default)]
struct Unlucky {
    store: InMemory,
    fates: Mutex<Vec<Fate>>,
}

fn bucket(fates: &[Fate]) -> (Bucket, Arc<Unlucky>) {
    let store = Arc::new(Unlucky::default());
    let bucket = Bucket::from_store("unlucky", store.clone(), &BucketOptions::default());
    *store.fates.lock() = fates.to_vec();
    (bucket, store)
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_reply_was_lost_is_done() {
    for fates in [
        &[Fate::ReplyLost][..],
        &[Fate::RequestLost],
        &[Fate::Met],
        &[Fate::ReplyLost, Fate::RequestLost],
    ] {
        let (bucket, _) = bucket(fates);
        let created = bucket.create("n", Bytes::from_static(b"ours")).await.unwrap();
        assert_eq!(created, Created::Done, "{fates:?}");
        assert_eq!(bucket.get("n").await.unwrap(), "ours");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_found_another_says_so_even_after_trouble() {
    for fate in [Fate::RequestLost, Fate::Met] {
        let (bucket, store) = bucket(&[fate]);
        store
            .store
            .put(&Path::from("n"), Bytes::from_static(b"theirs").into())
            .await
            .unwrap();
        let created = bucket.create("n", Bytes::from_static(b"ours")).await.unwrap();
        assert_eq!(created, Created::Exists);
        assert_eq!(bucket.get("n").await.unwrap(), "theirs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_unavailable_in_bounded_time() {
    let (bucket, store) = bucket(&vec![Fate::RequestLost; 100]);
    let error = bucket.create("n", Bytes::from_static(b"ours")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(store.fates.lock().len() > 80, "too many tries");
}

#[tokio::test(start_paused = true)]
async fn a_swap_whose_reply_was_lost_is_done() {
    for fate in [Fate::ReplyLost, Fate::RequestLost, Fate::Met] {
        let (bucket, store) = bucket(&[]);
        bucket.put("m", Bytes::from_static(b"1")).await.unwrap();
        let (_, version) = bucket.get_version("m").await.unwrap().unwrap();
        store.fates.lock().push(fate.clone());
        let swapped = bucket
            .swap("m", Some(&version), Bytes::from_static(b"2"))
            .await
            .unwrap();
        let stored = bucket.get_version("m").await.unwrap().unwrap();
        assert_eq!(
            (Bytes::from_static(b"2"), swapped),
            (stored.0, Swapped::Done(stored.1)),
            "{fate:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_nobody_can_judge_is_unknown_and_a_refused_one_is_stale() {
    let (bucket, store) = bucket(&[]);
    bucket.put("m", Bytes::from_static(b"1")).await.unwrap();
    let (_, first) = bucket.get_version("m").await.unwrap().unwrap();
    store.fates.lock().push(Fate::ReplyLostAndReplaced("3"));
    let error = bucket
        .swap("m", Some(&first), Bytes::from_static(b"2"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    // The version is old now, and a 409 says that this try was refused: no doubt about it.
    store.fates.lock().push(Fate::Met);
    assert_eq!(
        bucket.swap("m", Some(&first), Bytes::from_static(b"4")).await.unwrap(),
        Swapped::Stale
    );
    assert_eq!(bucket.get("m").await.unwrap(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_layer_whose_reply_was_lost_is_there() {
    let layer = Bytes::from(vec![5; 300_000]);
    let (bucket, _) = bucket(&[Fate::ReplyLost, Fate::Met]);
    bucket.create_payload("layer", layer.clone()).await.unwrap();
    assert_eq!(bucket.get("layer").await.unwrap(), layer);
}

fn lost() -> Error {
    Error::Generic {
        store: "unlucky",
        source: "connection reset".into(),
    }
}

impl std::fmt::Display for Unlucky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unlucky")
    }
}

#[async_trait]
impl ObjectStore for Unlucky {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let fate = self.fates.lock().pop();
        match fate {
            None => self.store.put_opts(location, payload, opts).await,
            Some(Fate::RequestLost) => Err(lost()),
            Some(Fate::Met) => Err(Error::AlreadyExists {
                path: location.to_string(),
                source: "Server returned non-2xx status code: 409 Conflict".into(),
            }),
            Some(Fate::ReplyLost) => self.store.put_opts(location, payload, opts).await.and(Err(lost())),
            Some(Fate::ReplyLostAndReplaced(other)) => {
                self.store.put_opts(location, payload, opts).await?;
                self.store.put(location, other.into()).await?;
                Err(lost())
            }
        }
    }

    async fn put_multipart_opts(&self, at: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
