//! How the server is: whether it can be written to, and how the last hour was.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::calendar::rfc3339;

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::sentence::clock;
use super::shown::{bytes_words, span};
use crate::telemetry::past::Sample;

/// How wide and high a graph is, and how many points it has at most.
const GRAPH: (f64, f64) = (300.0, 60.0);
const POINTS_MAX: usize = 60;

#[derive(Template)]
#[template(path = "health.html")]
struct Page {
    top: Top,
    checks: Vec<Check>,
    /// Empty for those who may not see it: it is about everybody.
    graphs: Vec<Graph>,
    over: String,
    /// Which node says so, if there may be several.
    node: String,
    version: &'static str,
}

struct Check {
    name: &'static str,
    well: bool,
    said: String,
}

/// One number over the last hour: a line, what is under it, and a table.
struct Graph {
    id: &'static str,
    name: &'static str,
    now: String,
    most: String,
    line: String,
    area: String,
    rows: Vec<(String, String, String)>,
}

impl Check {
    /// What failed is for administrators: it may name files.
    fn of(name: &'static str, found: &Result<Option<String>, String>, all: bool) -> Check {
        let said = match found {
            Ok(_) => "works".to_owned(),
            Err(why) if all => why.clone(),
            Err(_) => "does not work: the server's log says why".to_owned(),
        };
        Check { name, well: found.is_ok(), said }
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let all = asked.caller.admin;
    let found = console.parts.checks.findings().await;
    let checks = found.iter().map(|(name, finding)| Check::of(name, finding, all)).collect();
    let samples = if all { console.parts.past.samples() } else { Vec::new() };
    let over = samples.first().zip(samples.last()).map(|(first, last)| span(last.at.since(first.at)));
    let page = Page {
        top: Top { here: "health", ..console.top(asked, "Health").await? },
        checks,
        graphs: if all { graphs(&samples) } else { Vec::new() },
        over: over.unwrap_or_default(),
        node: console.desk().node().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(html(200, &page, asked.caller.room()))
}

fn graphs(samples: &[Sample]) -> Vec<Graph> {
    let points = thin(samples);
    let per_second = |value: fn(&Sample) -> f64| {
        move |before: &Sample, after: &Sample| {
            let ms = after.at.since(before.at).max(1) as f64;
            (value(after) - value(before)).max(0.0) * 1000.0 / ms
        }
    };
    let commit = |before: &Sample, after: &Sample| {
        let (count, seconds) = (after.commits.0 - before.commits.0, after.commits.1 - before.commits.1);
        if count > 0.0 { seconds * 1000.0 / count } else { 0.0 }
    };
    let few = |number: f64| if number < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") };
    let rate = move |number: f64| format!("{} /s", few(number));
    let ms = move |number: f64| format!("{} ms", few(number));
    let whole = |number: f64| format!("{number:.0}");
    let bytes = |number: f64| bytes_words(number as u64);
    vec![
        graph("commands", "Commands accepted", &points, per_second(|sample| sample.accepted), rate),
        graph("refusals", "Refused or limited", &points, per_second(|sample| sample.refused), rate),
        graph("commits", "Mean time of a commit", &points, commit, ms),
        graph("sessions", "Sessions in memory", &points, |_, now| now.sessions, whole),
        graph("streams", "Streams open", &points, |_, now| now.streams, whole),
        graph("memory", "Memory held for agents", &points, |_, now| now.memory, bytes),
    ]
}

/// No more samples than can be told apart, the first and the last among them.
fn thin(samples: &[Sample]) -> Vec<Sample> {
    let step = samples.len().div_ceil(POINTS_MAX).max(1);
    let mut points: Vec<Sample> = samples.iter().rev().step_by(step).copied().collect();
    points.reverse();
    points
}

fn graph(
    id: &'static str,
    name: &'static str,
    points: &[Sample],
    value: impl Fn(&Sample, &Sample) -> f64,
    words: impl Fn(f64) -> String,
) -> Graph {
    let (wide, high) = GRAPH;
    let values: Vec<(&Sample, f64)> =
        points.windows(2).map(|pair| (&pair[1], value(&pair[0], &pair[1]))).collect();
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let first = values.first().map_or(0, |(sample, _)| sample.at.0);
    let whole = values.last().map_or(0, |(sample, _)| sample.at.0).saturating_sub(first).max(1) as f64;
    let place = |(sample, value): &(&Sample, f64)| {
        let x = (sample.at.0 - first) as f64 * wide / whole;
        let y = high - value / if most > 0.0 { most } else { 1.0 } * (high - 2.0);
        format!("{x:.1},{y:.1}")
    };
    let mut places: Vec<String> = values.iter().map(place).collect();
    if let [only] = places.as_slice() {
        // One value is a level line.
        places.push(only.replacen("0.0,", &format!("{wide:.1},"), 1));
    }
    let line = places.join(" ");
    let row = |(sample, value): &(&Sample, f64)| {
        let exact = rfc3339(sample.at);
        (clock(&exact), exact, words(*value))
    };
    Graph {
        id,
        name,
        now: values.last().map_or_else(String::new, |(_, value)| words(*value)),
        most: words(most),
        area: format!("0,{high} {line} {wide},{high}"),
        line,
        rows: values.iter().rev().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_kernel::Timestamp;

    #[test]
    fn a_graph_has_rates_of_what_only_grows_and_levels_of_the_rest() {
        let sample = |second: u64, accepted: f64, streams: f64| Sample {
            at: Timestamp(second * 1000),
            accepted,
            streams,
            ..Sample::default()
        };
        let samples = [sample(0, 10.0, 1.0), sample(5, 60.0, 4.0), sample(10, 60.0, 2.0)];
        let graphs = graphs(&samples);
        let of = |id: &str| graphs.iter().find(|graph| graph.id == id).unwrap();
        assert_eq!((of("commands").now.as_str(), of("commands").most.as_str()), ("0.0 /s", "10 /s"));
        assert_eq!((of("streams").now.as_str(), of("streams").most.as_str()), ("2", "4"));
        assert_eq!(of("streams").line, "0.0,2.0 300.0,31.0");
        assert_eq!(of("commands").rows.len(), 2);
        let many: Vec<Sample> = (0..721).map(|second| sample(second, 0.0, 0.0)).collect();
        let thinned = thin(&many);
        assert!(thinned.len() <= POINTS_MAX && thinned.last() == many.last());
    }
}
