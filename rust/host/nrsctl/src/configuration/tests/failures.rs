// SPDX-License-Identifier: GPL-2.0-only

//! Refusals, interruptions, and closed output.

use super::*;
use crate::show::Unread;

#[test]
fn a_refused_change_leaves_all_as_it_was() {
    let before = "[service.a]\ncpts = 2\npolicy = 'tbf uid'\nslots = 5\nweights.'uid:1' = 2\n\
                  rule = [{ name = 'x', match = '{1}', rate = 5 }]\n\
                  [service.b]\nslots = 4\n";
    // The number of partitions is set first, and undone.
    for (taken, cpts, what) in [
        (0, 1, "`cpts = 1`"),
        (1, 1, "the configuration"),
        (0, 2, "the configuration"),
    ] {
        let module = Mock::of(&["b"]);
        applied(&module, before);
        let shown = module.shown();
        module.refuse(taken, 1, FailureKind::Refused);
        let text = ALL.replace("cpts = 1\n", &format!("cpts = {cpts}\n"));
        let (out, done) = apply(&module, &(text + "[service.b]\nslots = 7\n"));
        let unchanged = failure!(Refused: "a: {what} was refused: no; the service was not changed");
        assert_eq!(done, Err(unchanged));
        // The other service is changed all the same.
        ends(&out, "b: changed\n");
        module.set("b", "slots", "4").unwrap();
        assert_eq!(module.shown(), shown, "{what}");
    }
}

/// Verifies that the policies of a framework, and its rules, are not replaced.
#[test]
fn services_that_a_framework_drives() {
    let module = Mock::of(&["a"]);
    module.set("a", "nrs_policies", "tbf uid").unwrap();
    let rule = "start x uid={1} rate=5";
    module.set("a", "nrs_tbf_rule", rule).unwrap();
    module.drive("a");
    let shown = module.shown();
    for policy in ["", "policy = 'fifo'\n", "policy = 'tbf gid'\n"] {
        let failure = apply(&module, &format!("[service.a]\nslots = 5\n{policy}"));
        assert_eq!(
            failure.1.unwrap_err().message,
            "a: the configuration was refused: a framework drives the policies of this service; \
             the service was not changed"
        );
        assert_eq!(module.shown(), shown);
    }
    applied(&module, "[service.a]\nslots = 5\npolicy = 'tbf uid'\n");
    assert_eq!(module.get("a", "slots").unwrap(), "5\n");
}

/// Verifies that the message has the line that the module refuses.
#[test]
fn refused_lines() {
    let kernel = Mock::of(&["a"]);
    let rule = format!("nrs_tbf_rule start a uid={{{}}} rate=1", "1 ".repeat(100));
    for (line, shown) in [(&*rule, " 1 1 ...`"), ("nrs_policies none", "none`")] {
        let text = format!("slots 5\n{line}\n");
        let failure = kernel.set("a", "config", &text).unwrap_err();
        let message = carry_out::refusal("a", &text, &failure.message);
        let shown = format!("{shown} was refused: ");
        let end = message.find(&shown).unwrap_or_else(|| panic!("{message}"));
        assert!(line.starts_with(message[1..end].trim_end()), "{message}");
    }
}

#[test]
fn failed_rollbacks_are_reported() {
    let module = Mock::of(&[]);
    applied(&module, "[service.a]\ncpts = 2\n");
    module.refuse(1, 2, FailureKind::Refused);
    let failure = refused(&module, "[service.a]\ncpts = 1\n");
    let both = failure!(Refused:
        "a: the configuration was refused: no; restoring the previous state failed: no; the \
         service is partly changed";
        "see the running state: nrsctl save --service a");
    assert_eq!(failure, both);
}

#[test]
fn a_service_that_could_not_be_set_up_is_removed() {
    let module = Mock::of(&[]);
    module.refuse(0, 1, FailureKind::Refused);
    let failure = refused(&module, "[service.a]\nslots = 5\n");
    ends(&failure.message, "; the service was removed");
    assert!(module.services().unwrap().is_empty());
}

/// Verifies that a service that cannot be changed does not prevent changes of the others.
#[test]
fn a_service_that_cannot_be_changed_keeps_no_other() {
    let module = Mock::of(&["a", "b"]);
    let file = TemporaryFile::new("[service.a]\ncpts = 1\n[service.b]\nslots = 7\n");
    let (out, done) = ran(&module, "--dry-run", &file);
    has(&out, "\n+slots = 7\n");
    assert_eq!(done.unwrap_err().kind, FailureKind::Busy);
    assert_eq!(module.get("b", "slots").unwrap(), "auto\n");
    let (out, done) = ran(&module, "", &file);
    ends(&out, "b: changed\n");
    let failure = done.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Busy);
    assert!(
        failure.message.starts_with("a: `cpts` cannot be set")
            && failure.message.contains("clients created the service"),
        "{failure}"
    );
    assert_eq!(module.get("b", "slots").unwrap(), "7\n");
    // No other change is needed, and the failure is reported.
    let (out, done) = ran(&module, "", &file);
    assert_eq!(
        (out.as_str(), done.unwrap_err().kind),
        ("", FailureKind::Busy)
    );
}

/// Verifies that a signal leaves no service half changed.
#[test]
fn interruptions() {
    let text = "[service.a]\nslots = 5\nparameters.stall_ms = 500\n[service.b]\nslots = 7\n";
    let module = Mock::of(&["a", "b"]);
    module.tell.set(1);
    let (out, done) = apply(&module, text);
    assert_eq!(done.unwrap_err().message, "interrupted; not changed: b");
    ends(&out, "a: changed\n");
    // The signal arrived before the first change: nothing is changed.
    let module = Mock::of(&["a", "b"]);
    let shown = module.shown();
    module.tell.set(0);
    module.told.store(true, Ordering::Relaxed);
    let text = format!("[module]\ndefault_slots = 9\n{text}");
    let failure = refused(&module, &text);
    assert_eq!(
        failure.message,
        "module parameter default_slots = 9 was not set: interrupted\n\
         nrsctl: interrupted; not changed: a, b"
    );
    assert_eq!(module.shown(), shown);
    assert_eq!(module.module_parameter("default_slots").unwrap(), "auto\n");
}

/// Verifies that a signal ends the retries of a busy write.
#[test]
fn waiting_is_interrupted() {
    let module = Mock::of(&["a"]);
    let shown = module.shown();
    let file = TemporaryFile::new("[service.a]\nslots = 5\nparameters.stall_ms = 500\n");
    module.refuse(0, 4, FailureKind::Busy);
    module.tell.set(3);
    let failure = ran(&module, "--wait 600", &file).1.unwrap_err();
    let why = "a: interrupted; the service was not changed";
    assert_eq!(failure.message, why);
    assert_eq!(module.shown(), shown);
}

#[test]
fn parameters_of_the_module_are_put_back() {
    let text = "[module]\ndefault_slots = 9\nuser_requests_max = 100\n[service.a]\nslots = 5\n";
    let module = Mock::of(&["a"]);
    *module.stubborn.borrow_mut() = "user_requests_max";
    let (out, done) = apply(&module, text);
    let restored = failure!(Refused:
        "module parameter user_requests_max = 100 was not set: no; default_slots was restored \
         to auto");
    assert_eq!(done, Err(restored));
    assert_eq!(module.module_parameter("default_slots").unwrap(), "auto\n");
    // The change of the service is complete.
    ends(&out, "a: changed\n");
}

/// Verifies that changes continue if the output is closed, and that a dry run does not.
#[test]
fn output_may_be_closed() {
    let module = Mock::of(&["a", "b"]);
    let file = TemporaryFile::new("[service.a]\nslots = 5\n[service.b]\nslots = 7\n");
    let run = |options| {
        let args = args(options, &file);
        apply::until(&args, &module, &mut Unread, &module.told).unwrap_err()
    };
    let failure = run("--dry-run");
    assert_eq!(failure.kind, FailureKind::Closed);
    let failure = run("");
    assert_eq!(failure.kind, FailureKind::Other);
    assert_eq!(module.get("a", "slots").unwrap(), "5\n");
    assert_eq!(module.get("b", "slots").unwrap(), "7\n");
}
