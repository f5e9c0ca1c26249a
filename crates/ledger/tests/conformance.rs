//! The conformance suite over every backend.

use cuesta_ledger::{EmbeddedOptions, EmbeddedStore, MemoryStore, conformance};
use cuesta_store::Workers;
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
