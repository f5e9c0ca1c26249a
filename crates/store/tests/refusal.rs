//! A store that takes the headers of conditional writes and breaks them under a race must not carry a ledger.

#![allow(clippy::unwrap_used)]

use cuesta_store::{Bucket, BucketOptions, Check, Entropy, Finding};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_checks_before_it_writes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("bucket")).unwrap();
    let options = BucketOptions {
        endpoint: Some(serve(directory.path()).await),
        region: Some("us-east-1".to_owned()),
        access_key_id: Some("id".to_owned()),
        secret_access_key: Some("secret".to_owned()),
        allow_http: true,
        ..BucketOptions::default()
    };
    let bucket = Bucket::open("s3://bucket", &options).unwrap();
    let report = bucket.probe(&Entropy::system()).await;
    let finding = |check| {
        report
            .findings()
            .iter()
            .find(|(c, _)| *c == check)
            .map(|(_, finding)| finding)
    };
    assert_eq!(
        finding(Check::Create),
        Some(&Finding::Ok),
        "one after the other it looks well: {report}"
    );
    assert!(
        matches!(finding(Check::CreateRace), Some(Finding::Broken(_))),
        "{report}"
    );
    assert!(!report.safe_for_bucket_ledger(), "{report}");
}

/// Serves the directories under `root` as buckets on a port of its own, until the runtime ends; gives the endpoint.
async fn serve(root: &std::path::Path) -> String {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single("id", "secret"));
    let service = builder.build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    });
    endpoint
}
