//! The settings of traces: `trace_endpoint`, and those that go with it.

use tidegate_traces::{TraceSettings, Written};

use super::reader::Reader;

/// Takes the settings out of the text; `None` where no spans are sent, or the settings are refused.
pub(super) fn traces(reader: &mut Reader) -> Option<TraceSettings> {
    let written = Written {
        endpoint: reader.hidden("trace_endpoint", "http://HOST:4318"),
        sample: reader.decimal("trace_sample"),
        headers_file: reader.path("trace_headers_file"),
        ca: reader.path("trace_ca"),
        plaintext: reader.switch("trace_plaintext_off_loopback").unwrap_or_default(),
    };
    if reader.has_refused("trace_endpoint") {
        return None;
    }
    written.check().unwrap_or_else(|error| {
        let (key, message) = error.parts();
        reader.refuse(key, &message);
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn refused(text: &str) -> String {
        let errors = Config::parse(text).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_setting_of_traces_is_read() {
        let text =
            "trace_endpoint = \"https://otel.example\"\ntrace_headers_file = \"h\"\ntrace_ca = \"ca.pem\"\n";
        for (sample, share) in
            [("0.25", "0.25"), ("\"0.25\"", "0.25"), ("1", "1"), ("1.0", "1"), ("0.000001", "0.000001")]
        {
            let settings = Config::parse(&format!("{text}trace_sample = {sample}")).unwrap().traces.unwrap();
            assert_eq!(
                (settings.endpoint.reveal(), settings.share.to_string()),
                ("https://otel.example/v1/traces".to_owned(), share.to_owned())
            );
            assert_eq!(
                (settings.headers_file, settings.authorities),
                (Some("h".into()), Some("ca.pem".into()))
            );
        }
        let plain = "trace_endpoint = \"http://otel.example\"\ntrace_plaintext_off_loopback = true\n";
        assert!(Config::parse(plain).unwrap().traces.unwrap().plaintext);
        assert_eq!(Config::parse("").unwrap().traces, None);
    }

    #[test]
    fn what_is_wrong_is_named_and_no_address_is_shown() {
        for (text, said) in [
            ("trace_endpoint = [\"https://s3cret\"]", "trace_endpoint: is no text"),
            ("trace_endpoint = \"https://ann:s3cret@otel.example\"", "trace_endpoint: has a user"),
            ("trace_endpoint = \"http://otel.example/s3cret\"", "set trace_plaintext_off_loopback"),
            ("trace_endpoint = \"http://localhost\"\ntrace_sample = 2", "trace_sample: \"2\" is no share"),
            (
                "trace_endpoint = \"http://localhost\"\ntrace_sample = [0]",
                "trace_sample: \"[0]\" is no share",
            ),
            ("trace_sample = 0.5", "trace_sample: has no effect without trace_endpoint"),
            ("trace_ca = \"\"", "trace_ca: is empty"),
        ] {
            let refused = refused(text);
            assert!(refused.contains(said) && !refused.contains("s3cret"), "{text}: {refused}");
        }
        let refused = refused("trace_endpoint = 5\ntrace_sample = 0.5");
        assert!(refused.starts_with("trace_endpoint: ") && !refused.contains("has no effect"), "{refused}");
    }
}
