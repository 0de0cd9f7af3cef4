//! The same numbers for programs that read JSON: `{"NAME": [{"labels": {...}, "value": 1}, ...], ...}`.

use serde_json::{Map, Value, json};

/// Makes JSON of OpenMetrics text that the library wrote.
pub(super) fn of(text: &str) -> String {
    let mut all = Map::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, self::labels(labels)),
            None => (series, Map::new()),
        };
        let whole = value.parse::<u64>().ok().map(Value::from);
        let value = whole.or_else(|| value.parse::<f64>().ok().map(Value::from));
        let entries = all.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let (Value::Array(entries), Some(value)) = (entries, value) {
            entries.push(json!({ "labels": labels, "value": value }));
        }
    }
    Value::Object(all).to_string()
}

/// Reads `a="b",c="d"}`.
fn labels(text: &str) -> Map<String, Value> {
    let mut labels = Map::new();
    let mut left = text;
    while let Some((name, rest)) = left.split_once("=\"") {
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => break,
                },
                '"' => {
                    end = at + 1;
                    break;
                }
                other => value.push(other),
            }
        }
        labels.insert(name.to_owned(), Value::String(value));
        left = rest[end..].trim_start_matches(',');
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let read = of("# HELP a b\na_total{x=\"1\\\"}{,\\\\\\n\",y=\"\"} 7\nb 1.5\n# EOF\n");
        let read: Value = serde_json::from_str(&read).unwrap();
        let expected = json!({
            "a_total": [{ "labels": { "x": "1\"}{,\\\n", "y": "" }, "value": 7 }],
            "b": [{ "labels": {}, "value": 1.5 }],
        });
        assert_eq!(read, expected);
    }
}
