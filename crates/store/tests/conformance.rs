//! The conformance suite over every backend at hand.
//!
//! Memory and a local directory always; servers where the environment names them:
//! `CUESTA_TEST_S3_ENDPOINT` (with `CUESTA_TEST_S3_ACCESS_KEY`, `CUESTA_TEST_S3_SECRET_KEY`, `CUESTA_TEST_S3_BUCKET`) and
//! `CUESTA_TEST_AZURE_ENDPOINT` (with `CUESTA_TEST_AZURE_ACCOUNT`, `CUESTA_TEST_AZURE_KEY`, `CUESTA_TEST_AZURE_CONTAINER`).

use cuesta_store::{Bucket, BucketOptions, Entropy, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
    conformance::all(&bucket, &Entropy::seeded(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("a bucket");
    // Syncing is the same code path with a flag; the suite makes thousands of files.
    let options = BucketOptions {
        sync: false,
        ..BucketOptions::default()
    };
    let bucket = Bucket::open(root.to_str().unwrap(), &options).unwrap();
    conformance::all(&bucket, &Entropy::seeded(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synced_local_directory_by_url() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().to_str().unwrap());
    let bucket = Bucket::open(&url, &BucketOptions::default()).unwrap();
    conformance::create_race(&bucket, "x/y/race").await;
    conformance::uploads(&bucket, "x/y/uploads").await;
    conformance::exact_ranges(&bucket, "x/y/ranges").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3() {
    let Ok(endpoint) = std::env::var("CUESTA_TEST_S3_ENDPOINT") else {
        return eprintln!("skipped: CUESTA_TEST_S3_ENDPOINT is not set");
    };
    let options = BucketOptions {
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        access_key_id: std::env::var("CUESTA_TEST_S3_ACCESS_KEY").ok(),
        secret_access_key: std::env::var("CUESTA_TEST_S3_SECRET_KEY").ok(),
        allow_http: true,
        ..BucketOptions::default()
    };
    let name = std::env::var("CUESTA_TEST_S3_BUCKET").unwrap_or("cuesta".to_owned());
    for url in [format!("s3://{name}"), format!("s3://{name}/some/prefix")] {
        let bucket = Bucket::open(&url, &options).unwrap();
        conformance::all(&bucket, &Entropy::system()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azure() {
    let Ok(endpoint) = std::env::var("CUESTA_TEST_AZURE_ENDPOINT") else {
        return eprintln!("skipped: CUESTA_TEST_AZURE_ENDPOINT is not set");
    };
    let options = BucketOptions {
        endpoint: Some(endpoint),
        access_key_id: std::env::var("CUESTA_TEST_AZURE_ACCOUNT").ok(),
        secret_access_key: std::env::var("CUESTA_TEST_AZURE_KEY").ok(),
        allow_http: true,
        ..BucketOptions::default()
    };
    let name = std::env::var("CUESTA_TEST_AZURE_CONTAINER").unwrap_or("cuesta".to_owned());
    let bucket = Bucket::open(&format!("az://{name}/some/prefix"), &options).unwrap();
    conformance::all(&bucket, &Entropy::system()).await;
}
