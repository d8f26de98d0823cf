// SPDX-License-Identifier: GPL-2.0-only

//! The statistics file is YAML whatever jobs are called.

use nrs_sched::{
    jobid::JobId,
    key::Key,
    ranges::Table,
    stats::{write_yaml, Row},
};
use proptest::prelude::*;
use yaml_rust2::{Yaml, YamlLoader};

fn row(key: Key, active: bool) -> Row {
    let mut row = Row::new(key, 4096);
    row.active = active;
    row.queue_depth = u32::from(active);
    row.lag_decipages = -124;
    row
}

fn parse(rows: &[Row]) -> Vec<Yaml> {
    let table = Table::build(rows, 0).expect("memory");
    let mut text = String::new();
    write_yaml(&mut text, rows, Some(&table)).expect("a string takes everything");
    let mut documents = YamlLoader::load_from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    match documents.pop() {
        Some(Yaml::Array(entities)) => entities,
        other => panic!("{other:?}: {text}"),
    }
}

#[test]
fn the_fields_are_those_of_the_design() {
    let entities = parse(&[row(Key::Jobid(JobId::new(b"batch_sim.12345")), true)]);
    let entity = &entities[0];
    assert_eq!(entity["entity"].as_str(), Some("jobid:batch_sim.12345"));
    assert_eq!(entity["type"].as_str(), Some("jobid"));
    assert_eq!(entity["active"].as_bool(), Some(true));
    assert_eq!(entity["range"].as_str(), Some("[0.000, 1.000)"));
    assert_eq!(entity["fairness_debt"].as_f64(), Some(-12.4));
    for counter in ["dispatched", "cost_pages", "opportunity"] {
        assert_eq!(entity[counter].as_i64(), Some(0), "{counter}");
    }
    assert_eq!(entity["queue_depth"].as_i64(), Some(1));
}

proptest! {
    #[test]
    fn any_name_is_read_back(name in proptest::collection::vec(1u8.., 1..31)) {
        let entities = parse(&[row(Key::Jobid(JobId::new(&name)), false)]);
        prop_assert_eq!(entities.len(), 1);
        let entity = entities[0]["entity"].as_str().unwrap_or_default();
        prop_assert!(entity.starts_with("jobid:"));
        if name.is_ascii() {
            let wanted = String::from_utf8(name).unwrap_or_default();
            prop_assert_eq!(entity.strip_prefix("jobid:"), Some(wanted.as_str()));
        }
    }
}
