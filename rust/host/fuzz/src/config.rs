// SPDX-License-Identifier: GPL-2.0-only

//! Texts of a whole service: a text that is refused changes nothing; the text of the service that
//! an accepted text made, makes another service equal to it.

use nrs_sched::service_world::ServiceWorld;

use crate::check_reason;

/// Settings of the service that takes the text.
const PRESENT: &str = "slots 3\nnrs_policies tbf uid\nnrs_tbf_rule start old uid={1} rate=5\n";

/// Checks a text.
pub fn run(text: &str) {
    let world = ServiceWorld::new(1, 1);
    world.set("config", PRESENT).expect("valid");
    let before = world.show();
    if let Err(error) = world.set("config", text).inspect_err(check_reason) {
        assert!(error.line() as usize <= text.lines().count());
        assert_eq!(world.show(), before);
        return;
    }
    let other = ServiceWorld::new(1, 1);
    other
        .set("config", &world.text())
        .expect("the text of a service");
    assert_eq!(other.text(), world.text());
    assert_eq!(other.show(), world.show());
    let changes = world.primaries_changed.get();
    world.set("config", &other.text()).expect("its own text");
    assert_eq!(world.primaries_changed.get(), changes);
}
