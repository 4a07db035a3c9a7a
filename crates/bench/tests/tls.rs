//! TLS against redis-server, with certificates made for the test.

mod support;

use std::path::PathBuf;
use support::options;
use support::real::{Real, new_folder, run};

/// An authority, a certificate of the server and one of a client in a new folder.
fn certificates() -> PathBuf {
    let folder = new_folder();
    let openssl = |line: &str| run("openssl", &line.split(' ').collect::<Vec<_>>(), &folder);
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt",
    );
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:kelvin.test\n")
        .expect("a file");
    for name in ["server", "client"] {
        openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
             -extfile names -out {name}.crt"
        ));
    }
    folder
}

#[test]
fn loads_are_encrypted_and_the_server_is_checked() {
    let folder = certificates();
    let file = |name: &str| folder.join(name).display().to_string();
    let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let more = ["--port", "0", "--tls-cert-file", &cert, "--tls-key-file", &key];
    let more = [&more[..], &["--tls-ca-cert-file", &ca]].concat();
    let server = Real::start_in(folder.clone(), "--tls-port", &more);
    let client = format!("--cert {} --key {}", file("client.crt"), file("client.key"));
    let good = [
        format!("--tls --cacert {ca} {client}"),
        format!("--tls --cacert {ca} {client} --sni kelvin.test -P resp3"),
        format!("--tls --tls-skip-verify {client} --pipeline 64 -d 20000"),
    ];
    for line in good {
        let keys = "-c 3 -t 2 -n allkeys --key-minimum 1 --key-maximum 300 --key-pattern P:P";
        for more in ["--ratio 1:0", "--ratio 0:1 --verify"] {
            let line = format!("{line} {keys} {more}");
            let report = bench::run(&options(server.port, &line)).expect(&line);
            assert!(report.is_flawless(), "{line}: {report}");
            assert_eq!(report.stats().totals().count(), 300, "{line}");
        }
    }
    let bad = [
        // The server wants a certificate of the client.
        format!("--tls --cacert {ca}"),
        // Nobody on this machine vouches for the server.
        format!("--tls {client}"),
        // The certificate is of another server.
        format!("--tls --cacert {ca} {client} --sni another.test"),
        // No TLS at all.
        "--protocol resp3".to_owned(),
    ];
    for line in bad {
        let error = bench::run(&options(server.port, &format!("{line} -n 1"))).expect_err(&line);
        assert!(error.to_string().starts_with("cannot connect to 127.0.0.1:"), "{error}");
    }
}
