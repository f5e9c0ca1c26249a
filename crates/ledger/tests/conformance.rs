//! The conformance suite over every backend.

use cuesta_ledger::remote::{self, RemoteStore, ServerOptions};
use cuesta_ledger::{EmbeddedOptions, EmbeddedStore, MemoryStore, conformance};
use cuesta_store::Workers;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_conforms() {
    conformance::run(Arc::new(MemoryStore::new()), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let workers = Workers::Pool(tokio::runtime::Handle::current());
    let path = directory.path().join("ledger.redb");
    let store = EmbeddedStore::open(&path, EmbeddedOptions::default(), workers).unwrap();
    conformance::run(Arc::new(store), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sock");
    let serving = tokio::spawn({
        let path = path.clone();
        async move { remote::serve(&path, Arc::new(MemoryStore::new()), ServerOptions::default()).await }
    });
    while !path.exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let store = RemoteStore::connect(&path).await.unwrap();
    conformance::run(Arc::new(store), 1).await;
    serving.abort();
}
