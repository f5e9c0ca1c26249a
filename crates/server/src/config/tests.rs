use super::*;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn sources(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> (Sources, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cuesta.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    let file = file.map(|_| path);
    (
        Sources {
            file,
            environment: pairs(environment),
            flags: pairs(flags),
        },
        directory,
    )
}

fn load(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let (sources, _directory) = sources(file, environment, flags);
    Config::load(&sources)
}

fn refusal(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    load(file, environment, flags).unwrap_err().to_string()
}

#[test]
fn nothing_gives_the_defaults() {
    let config = load(None, &[("HOME", "/root"), ("PATH", "/bin")], &[]).unwrap();
    assert_eq!(config.settings, Settings::default());
    assert_eq!(config.origin("listen"), &Origin::Default);
}

#[test]
fn the_file_yields_to_the_environment_and_both_to_flags() {
    let file = Some("fetches_max = 1\nconnections_max = 1\ndrain_seconds_max = 1");
    let environment = [("CUESTA_CONNECTIONS_MAX", "2"), ("CUESTA_DRAIN_SECONDS_MAX", "2")];
    let config = load(file, &environment, &[("drain_seconds_max", "3")]).unwrap();
    let Settings {
        fetches_max,
        connections_max,
        drain_seconds_max,
        ..
    } = config.settings;
    assert_eq!((fetches_max, connections_max, drain_seconds_max), (1, 2, 3));
    assert!(matches!(config.origin("fetches_max"), Origin::File(_)));
    assert_eq!(
        config.origin("connections_max"),
        &Origin::Environment("CUESTA_CONNECTIONS_MAX".to_owned())
    );
    assert_eq!(config.origin("drain_seconds_max"), &Origin::Flag);
}

#[test]
fn unknown_names_are_refused_wherever_they_stand() {
    let in_file = refusal(Some("fetches_max = 1\nfetch_max = 1"), &[], &[]);
    assert!(in_file.contains("fetch_max") && in_file.contains("line 2"), "{in_file}");
    let variable = refusal(None, &[("CUESTA_FETCH_MAX", "1")], &[]);
    assert_eq!(
        variable,
        "unknown setting 'fetch_max' from environment CUESTA_FETCH_MAX"
    );
    assert_eq!(
        refusal(None, &[], &[("fetch_max", "1")]),
        "unknown setting 'fetch_max' from flag"
    );
}

#[test]
fn wrong_values_are_blamed_on_their_source() {
    let message = refusal(None, &[("CUESTA_LISTEN", "localhost")], &[]);
    assert!(
        message.contains("'listen'") && message.contains("environment CUESTA_LISTEN"),
        "{message}"
    );
    for (name, value) in [
        ("fetches_max", "many"),
        ("create_on_push", "yes"),
        ("log_format", "xml"),
        ("cache_bytes_max", "1MB"),
    ] {
        let message = refusal(None, &[], &[(name, value)]);
        assert!(message.contains(name) && message.contains(value), "{message}");
    }
    assert!(refusal(Some("fetches_max = 0"), &[], &[]).contains("fetches_max"));
    assert!(refusal(Some("fetches_max = -1"), &[], &[]).contains("line 1"));
}

#[test]
fn links_and_readers_have_their_time_before_payloads_go() {
    let refused = refusal(None, &[], &[("collect_grace_seconds", "86399")]);
    assert!(
        refused.contains("'collect_grace_seconds' must be at least 86400"),
        "{refused}"
    );
    let refused = refusal(None, &[], &[("uri_seconds", "43201")]);
    assert!(refused.contains("between 1 and 43200"), "{refused}");
    let longer = [("collect_grace_seconds", "86402"), ("uri_seconds", "43201")];
    assert!(load(None, &[], &longer).is_ok());
}

#[test]
fn the_bucket_follows_the_data_directory_until_it_is_named() {
    let moved = load(None, &[], &[("data", "/srv/git")]).unwrap();
    assert_eq!(moved.settings.bucket, "/srv/git/bucket");
    let named = load(None, &[("CUESTA_BUCKET", "s3://bucket")], &[("data", "/srv/git")]).unwrap();
    assert_eq!(named.settings.bucket, "s3://bucket");
}

#[test]
fn the_environment_names_the_file_unless_a_flag_does() {
    let (flagged, _directory) = sources(Some("fetches_max = 7"), &[], &[]);
    let path = flagged.file.unwrap().to_str().unwrap().to_owned();
    let config = load(None, &[("CUESTA_CONFIG", &path)], &[]).unwrap();
    assert_eq!(config.settings.fetches_max, 7);
    let config = load(Some("fetches_max = 8"), &[("CUESTA_CONFIG", &path)], &[]).unwrap();
    assert_eq!(config.settings.fetches_max, 8);
    assert!(refusal(None, &[("CUESTA_CONFIG", "/does/not/exist")], &[]).contains("/does/not/exist"));
}

#[test]
fn secrets_are_kept_and_never_shown() {
    let config = load(None, &[("CUESTA_BUCKET_SECRET_ACCESS_KEY", "tr0ub4dor")], &[]).unwrap();
    assert_eq!(config.settings.bucket_secret_access_key.0, "tr0ub4dor");
    assert!(!config.show().contains("tr0ub4dor") && !format!("{config:?}").contains("tr0ub4dor"));
}

#[test]
fn what_is_shown_can_be_read_back() {
    let shown = load(None, &[("CUESTA_LOG_FORMAT", "json")], &[("data", "/srv/a b")]).unwrap();
    let text = shown.show();
    assert!(text.contains("# environment CUESTA_LOG_FORMAT"), "{text}");
    let again = load(Some(&text), &[], &[]).unwrap();
    assert_eq!(again.settings, shown.settings);
}

#[test]
fn sizes_have_units() {
    for (text, bytes) in [
        ("0", 0),
        ("1", 1),
        ("64KiB", 65_536),
        ("10MiB", 10 << 20),
        ("2 GiB", 2 << 30),
    ] {
        assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes));
    }
    for text in ["", "KiB", "-1", "1.5GiB", "1GB", "99999999TiB"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
    assert_eq!(
        [ByteSize(0), ByteSize(1025), ByteSize(3 << 20)].map(|size| size.to_string()),
        ["0", "1025", "3MiB"]
    );
}

#[test]
fn only_loopback_without_authentication() {
    for listen in ["127.0.0.1:8717", "127.9.9.9:1", "[::1]:0"] {
        let config = load(None, &[], &[("listen", listen)]).unwrap();
        assert!(config.settings.check_exposure().is_ok(), "{listen}");
    }
    for listen in ["0.0.0.0:8717", "192.168.0.1:80", "[::]:80", "[::ffff:127.0.0.1]:80"] {
        let config = load(None, &[], &[("listen", listen)]).unwrap();
        assert!(
            config.settings.check_exposure().unwrap_err().contains("authentication"),
            "{listen}"
        );
    }
}

#[test]
fn with_accounts_any_address_will_do() {
    let flags = [("listen", "0.0.0.0:8717"), ("authentication", "accounts")];
    let settings = load(None, &[], &flags).unwrap().settings;
    assert!(settings.check_exposure().is_ok() && settings.is_readable_on_the_way());
    let proxied = [("behind_tls_proxy", "true"), flags[0], flags[1]];
    assert!(!load(None, &[], &proxied).unwrap().settings.is_readable_on_the_way());
    let tls = [("tls_certificate", "a"), ("tls_key", "b"), flags[0], flags[1]];
    assert!(!load(None, &[], &tls).unwrap().settings.is_readable_on_the_way());
    assert!(refusal(None, &[], &[("tls_key", "b")]).contains("go together"));
    assert!(refusal(None, &[], &[("authentication", "maybe")]).contains("authentication"));
}
