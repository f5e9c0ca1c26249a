//! How a bucket is addressed and opened.

use crate::bucket::Handles;
use crate::error::{Result, StoreError};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// How to reach a bucket. What is `None` here comes from the usual environment of its vendor (`AWS_*`, `AZURE_*`,
/// `GOOGLE_*`), then from the vendor's own discovery (instance roles and the like).
#[derive(Clone)]
pub struct BucketOptions {
    /// Base URL of the service, for S3-compatible stores and emulators.
    pub endpoint: Option<String>,
    /// S3: the region.
    pub region: Option<String>,
    /// S3: the access key id. Azure: the account name.
    pub access_key_id: Option<String>,
    /// S3: the secret key. Azure: the account key. GCS: the service account as JSON.
    pub secret_access_key: Option<String>,
    /// Allow `http://` endpoints, over which credentials travel in the clear.
    pub allow_http: bool,
    /// Local directories: wait for the disk at every write. Off only where losing the bucket does not matter.
    pub sync: bool,
    /// Requests running at once; more wait.
    pub requests_max: usize,
    /// Retries of a request that the store or the network failed, beyond the first try.
    pub retries_max: usize,
    /// Time from the first try after which no retry is started.
    pub retry_timeout: Duration,
    /// Time that one request may take, body included.
    pub request_timeout: Duration,
    /// Bytes of one part of a multipart upload; a smaller payload goes as one put. A payload has at most 10,000 parts.
    pub part_bytes: usize,
    /// Parts of one upload in flight. An upload holds at most one part more than this in memory.
    pub upload_parts_max: usize,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            allow_http: false,
            sync: true,
            requests_max: 256,
            retries_max: 6,
            retry_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(120),
            part_bytes: 8 << 20,
            upload_parts_max: 4,
        }
    }
}

impl std::fmt::Debug for BucketOptions {
    /// Without the credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketOptions")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("allow_http", &self.allow_http)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// Makes `ring` the process's TLS provider. Harmless to call again or after another provider was installed.
///
/// The one place that names the provider, so that it stays a switch.
pub fn install_tls_provider() {
    // An error means that there is one already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Opens what `url` names. See [`crate::Bucket::open`].
pub(crate) fn open(url: &str, options: &BucketOptions) -> Result<Handles> {
    let bad = |reason: String| StoreError::BadBucket {
        url: url.to_owned(),
        reason,
    };
    let Some((scheme, rest)) = scheme_and_rest(url) else {
        return Handles::local(url, options);
    };
    install_tls_provider();
    match scheme {
        "file" => Handles::local(
            &file_path(rest).ok_or_else(|| bad("not an absolute local path".to_owned()))?,
            options,
        ),
        "memory" => Ok(Handles::remote(Arc::new(InMemory::new()), None)),
        "s3" | "gs" | "az" => open_cloud(scheme, rest, options).map_err(bad),
        other => Err(bad(format!("unknown scheme '{other}'"))),
    }
}

/// Splits `s3://bucket/prefix` into `s3` and `bucket/prefix`; `None` for a plain path.
fn scheme_and_rest(url: &str) -> Option<(&str, &str)> {
    match url.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => Some((scheme, rest)),
        _ => url.strip_prefix("memory:").map(|rest| ("memory", rest)),
    }
}

/// The path in `file://[localhost]/path`, with its percent escapes decoded.
fn file_path(rest: &str) -> Option<String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    path.starts_with('/').then(|| percent_decode(path))?
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

fn open_cloud(scheme: &str, rest: &str, options: &BucketOptions) -> Result<Handles, String> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err("no bucket name".to_owned());
    }
    let prefix = Path::parse(prefix).map_err(|error| error.to_string())?;
    let build = |retry: RetryConfig| -> Result<Opened, String> {
        let store = match scheme {
            "s3" => open_s3(name, options, retry),
            "gs" => open_gcs(name, options, retry),
            _ => open_azure(name, options, retry),
        };
        let (store, signer) = store.map_err(|error| error.to_string())?;
        match prefix.as_ref() {
            "" => Ok((store, signer)),
            _ => Ok((Arc::new(PrefixStore::new(store, prefix.clone())), signer)),
        }
    };
    let ((store, signer), (conditional, _)) = (build(retry(options))?, build(no_retry())?);
    Ok(Handles::remote(store, Some(conditional)).with_signer(signer, prefix.clone()))
}

/// A store, and the same as what signs URLs.
type Opened = (Arc<dyn ObjectStore>, Arc<dyn Signer>);

fn open_s3(name: &str, options: &BucketOptions, retry: RetryConfig) -> object_store::Result<Opened> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(name)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry);
    for (key, value) in client(options) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(id) = &options.access_key_id {
        builder = builder.with_access_key_id(id);
    }
    if let Some(secret) = &options.secret_access_key {
        builder = builder.with_secret_access_key(secret);
    }
    let store = Arc::new(builder.build()?);
    Ok((store.clone(), store))
}

fn open_gcs(name: &str, options: &BucketOptions, retry: RetryConfig) -> object_store::Result<Opened> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(name)
        .with_retry(retry);
    for (key, value) in client(options) {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(account) = &options.secret_access_key {
        builder = builder.with_service_account_key(account);
    }
    let store = Arc::new(builder.build()?);
    Ok((store.clone(), store))
}

fn open_azure(name: &str, options: &BucketOptions, retry: RetryConfig) -> object_store::Result<Opened> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(name)
        .with_retry(retry);
    for (key, value) in client(options) {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(account) = &options.access_key_id {
        builder = builder.with_account(account);
    }
    if let Some(key) = &options.secret_access_key {
        builder = builder.with_access_key(key);
    }
    let store = Arc::new(builder.build()?);
    Ok((store.clone(), store))
}

/// Settings of the HTTP client that differ from what the environment and the library's defaults give.
fn client(options: &BucketOptions) -> Vec<(ClientConfigKey, String)> {
    let mut settings = vec![
        (
            ClientConfigKey::Timeout,
            format!("{} seconds", options.request_timeout.as_secs().max(1)),
        ),
        (
            ClientConfigKey::ConnectTimeout,
            format!("{CONNECT_TIMEOUT_SECONDS} seconds"),
        ),
        (ClientConfigKey::PoolMaxIdlePerHost, options.requests_max.to_string()),
    ];
    if options.allow_http {
        settings.push((ClientConfigKey::AllowHttp, "true".to_owned()));
    }
    settings
}

fn retry(options: &BucketOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            ..BackoffConfig::default()
        },
        max_retries: options.retries_max,
        retry_timeout: options.retry_timeout,
    }
}

/// For conditional writes: a retry behind our back could find our own first try and call it a conflict.
fn no_retry() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

const CONNECT_TIMEOUT_SECONDS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_split_into_scheme_and_rest() {
        for (url, expected) in [
            ("/srv/data", None),
            ("data", None),
            ("C:\\x", None),
            ("s3://bucket/a/b", Some(("s3", "bucket/a/b"))),
            ("memory:", Some(("memory", ""))),
            ("memory://", Some(("memory", ""))),
        ] {
            assert_eq!(scheme_and_rest(url), expected, "{url}");
        }
    }

    #[test]
    fn file_addresses_decode() {
        assert_eq!(file_path("/a%20b").as_deref(), Some("/a b"));
        assert_eq!(file_path("localhost/a").as_deref(), Some("/a"));
        assert_eq!(file_path("host/a"), None);
        assert_eq!(file_path("/a%2"), None);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for url in ["ftp://x", "s3://", "s3:///prefix", "file://host/path", "az://c/a//b"] {
            let error = open(url, &BucketOptions::default()).map(|_| ()).unwrap_err();
            assert!(matches!(error, StoreError::BadBucket { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn credentials_are_not_printed() {
        let options = BucketOptions {
            secret_access_key: Some("hunter2".to_owned()),
            ..BucketOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
