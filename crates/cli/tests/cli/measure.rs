//! `perplexity` and `experts`: their numbers.

use std::fs;

use super::{gristmill, path};

#[test]
fn perplexity() {
    let text = path("long text");
    let long: String = (0..230).map(|i| char::from(b'a' + (i * 7 % 23) as u8)).collect();
    fs::write(&text, &long).unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["perplexity", "-m", "MODEL", "-f", &text], arguments].concat(), b"");
    let json: serde_json::Value = serde_json::from_str(&run(&["--ctx", "60", "--json"]).success()).unwrap();
    let number = |key: &str| json[key].as_f64().unwrap();
    // 231 tokens with BOS: 3 windows, of which tokens 31 to 59 are scored.
    assert_eq!((number("windows"), number("tokens_scored")), (3.0, 87.0));
    assert!((number("nll").exp() / number("perplexity") - 1.0).abs() < 1e-9);
    assert!(number("perplexity") > 1.0);
    let readable = run(&["--ctx", "60"]);
    assert_eq!(readable.out, format!("perplexity {:.4}\n", number("perplexity")));
    assert!(readable.err.contains("87 tokens"));

    // Compared with itself, the model differs by the rounding of the saved logits; with an 8-bit cache, by more.
    let saved = path("saved logits");
    run(&["--ctx", "60", "--save-logits", &saved]).success();
    let compare = |arguments: &[&str]| -> serde_json::Value {
        let arguments = [&["--ctx", "60", "--json", "--kl-base", &saved], arguments].concat();
        serde_json::from_str(&run(&arguments).success()).unwrap()
    };
    // A saved logit v is at most 0. F16 rounds it by at most 2^-11 |v|, or by 2^-25 for subnormals; r covers both, and
    // errors relative to rounded logits. The sum of e^v is at least 1, so |v| is at most −ln p.
    // - The error of a token's −ln p is at most r|v|, thus r times itself, plus the error of ln Σ e^v, at most r times
    //   a mean of −ln p weighted by p: an entropy, at most ln V.
    // - The divergence is at most half the variance of those errors, for probabilities between the saved and the
    //   model's: at most r²/2 times the mean of ln² p weighted by p, which is below (ln V + 1)².
    let r = 2_f64.powi(-11) / (1.0 - 2_f64.powi(-10)) + 2_f64.powi(-24);
    let entropy = 260_f64.ln();
    let same = compare(&[]);
    let off = (number_of(&same["divergence"], "base_perplexity") / number_of(&same, "perplexity")).ln();
    assert!(off.abs() <= r * (number_of(&same, "nll") + entropy), "{same}");
    let rounding = (r * (entropy + 1.0)).powi(2) / 2.0;
    assert!(number_of(&same["divergence"], "mean").abs() <= rounding, "{same}");
    assert_eq!(number_of(&same["divergence"], "same_top"), 1.0);

    // With an 8-bit cache, a router chooses another expert for a few tokens. Those tokens dominate the means and the
    // perplexity; the median shows the effect on the others.
    let other = compare(&["--kv", "q8_0"]);
    let [median, percentile, largest] =
        ["median", "percentile_99", "largest"].map(|key| number_of(&other["divergence"], key));
    assert!(number_of(&other["divergence"], "mean") > rounding && median < 0.01, "{other}");
    assert!(median <= percentile && percentile <= largest, "{other}");
    let readable = run(&["--ctx", "60", "--kl-base", &saved]).success();
    assert!(readable.contains("KL divergence mean 0.000000") && readable.contains("same most likely token 100.00%"));
}

/// The precision of activations changes the perplexity of the built-in model a little.
#[test]
fn precision() {
    let text = path("a story");
    fs::write(&text, "Once upon a time there was a little mill by the river. ".repeat(8)).unwrap();
    let perplexity = |precision: &str| {
        let run = ["perplexity", "-f", &text, "--ctx", "64", "--json", "--device", "cpu", "--precision", precision];
        number_of(&serde_json::from_str(&gristmill(&run, b"").success()).unwrap(), "perplexity")
    };
    let off = perplexity("fast") / perplexity("exact") - 1.0;
    assert!(off != 0.0 && off.abs() < 0.05, "{off}");
}

fn number_of(json: &serde_json::Value, key: &str) -> f64 {
    json[key].as_f64().unwrap()
}

#[test]
fn experts() {
    let (text, svg) = (path("text for experts"), path("experts.svg"));
    fs::write(&text, "abcdefgh".repeat(20)).unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["experts", "-m", "MODEL", "-f", &text], arguments].concat(), b"");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "--ctx", "50"]).success()).unwrap();
    let tokens = json["tokens"].as_u64().unwrap();
    for layer in json["layers"].as_array().unwrap() {
        let counts = layer["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), tokens * layer["top_k"].as_u64().unwrap(), "top_k experts for each token");
        assert!((0.0..=1.0).contains(&number_of(layer, "entropy")));
        assert!(number_of(layer, "least") <= 1.0 && number_of(layer, "most") >= 1.0);
    }
    // The counts are equal for any number of threads.
    assert_eq!(run(&["--json", "--ctx", "50"]).success(), run(&["--json", "--ctx", "50", "-t", "1"]).success());
    let readable = run(&["--svg", &svg, "--ctx", "50"]).success();
    assert_eq!(readable.lines().count(), 2 + json["layers"].as_array().unwrap().len(), "{readable}");
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg"));
    // --svg and --json in one run.
    fs::remove_file(&svg).unwrap();
    let both: serde_json::Value =
        serde_json::from_str(&run(&["--svg", &svg, "--json", "--ctx", "50"]).success()).unwrap();
    assert_eq!((&both, fs::read_to_string(&svg).unwrap()), (&json, picture));
}

/// A trace has the counts of `experts`, and `bench` reads the experts of a trace; one of another model is refused by line.
#[test]
fn traces() {
    let (text, trace) = (path("text for a trace"), path("trace.jsonl"));
    fs::write(&text, "abcdefgh".repeat(12)).unwrap();
    let experts = ["experts", "-m", "MODEL", "-f", &text, "--ctx", "40", "--trace", &trace, "--json"];
    let json: serde_json::Value = serde_json::from_str(&gristmill(&experts, b"").success()).unwrap();
    let lines: Vec<serde_json::Value> =
        fs::read_to_string(&trace).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, json["tokens"].as_u64().unwrap());
    for layer in json["layers"].as_array().unwrap() {
        let number = layer["layer"].as_u64().unwrap() as usize;
        for (expert, count) in layer["counts"].as_array().unwrap().iter().enumerate() {
            let of_line = |line: &serde_json::Value| {
                let chosen = line["experts"][number].as_array().unwrap();
                chosen.iter().filter(|pair| pair[0] == expert).count() as u64
            };
            assert_eq!(lines.iter().map(of_line).sum::<u64>(), count.as_u64().unwrap());
        }
    }
    let bench = |routing: &str| {
        gristmill(&["bench", "-m", "MODEL", "-p", "8", "-n", "4", "-r", "1", "--routing", routing, "--json"], b"")
    };
    let forced: serde_json::Value = serde_json::from_str(&bench(&trace).success()).unwrap();
    assert_eq!(forced["routing"], trace.as_str());
    assert!(forced["prefill"]["mean_distinct_experts"].as_f64().unwrap() > 0.0);
    serde_json::from_str::<serde_json::Value>(&bench("weak:2").success()).unwrap();
    let mut first = lines[0].clone();
    first["experts"].as_array_mut().unwrap().pop();
    fs::write(&trace, format!("{}\n{first}\n", lines[0])).unwrap();
    let refused = bench(&trace);
    assert!(refused.err.contains("line 2: there are") && refused.err.contains("--routing"), "{}", refused.err);
    assert!(bench("/no/such/trace").err.contains("cannot be read"));
}

/// The model and the measured limits are those of the level that is requested.
#[test]
fn cpu_levels() {
    let bench =
        ["bench", "-m", "MODEL", "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--cpu-level", "portable", "--json"];
    let json: serde_json::Value = serde_json::from_str(&gristmill(&bench, b"").success()).unwrap();
    assert_eq!(json["device"], "CPU, portable, 1 threads");
    assert_eq!(json["machine"]["level"], "portable");
}

#[test]
fn bench_says_where_the_time_goes() {
    let run = |arguments: &[&str]| {
        gristmill(&[&["bench", "-m", "MODEL", "-p", "6", "-n", "2", "-r", "2", "-t", "2"], arguments].concat(), b"")
    };
    let json: serde_json::Value = serde_json::from_str(&run(&["--profile", "--json"]).success()).unwrap();
    for phase in json["profile"].as_array().unwrap() {
        let operations = phase["operations"].as_array().unwrap();
        let shares: f64 = operations.iter().map(|line| number_of(line, "share")).sum();
        let between = number_of(phase, "between_seconds") / number_of(phase, "seconds");
        assert!((shares + between - 1.0).abs() < 1e-6, "{phase}");
        let attention = operations.iter().find(|line| line["operation"] == "attention").unwrap();
        assert!(number_of(attention, "operations") > 0.0, "{attention}");
        let layers = number_of(&json, "layers");
        // Prefill is one step, decode is two; both are repeated twice.
        assert!([2.0 * layers, 4.0 * layers].contains(&number_of(attention, "calls")), "{attention}");
        assert!(operations.iter().all(|line| line["working"].as_array().unwrap().len() == 2));
    }
    let readable = run(&["--profile"]).success();
    assert!(readable.contains("prefill 6, by operation") && readable.contains("decode 2, by operation"), "{readable}");
    assert!(readable.contains("(between operations)"), "{readable}");
    let plain: serde_json::Value = serde_json::from_str(&run(&["--json"]).success()).unwrap();
    assert!(plain["profile"].is_null());
}
