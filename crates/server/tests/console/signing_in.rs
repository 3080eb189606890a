//! Signing in and out, cookies, and requests of other pages.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};

use handover_desk::identity::jwt::keys::KeySet;
use handover_kernel::Face;
use serde_json::json;

use super::browser::Browser;
use super::issuer::{self, Key};
use super::others::stage::{Stage, tokens};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_development_a_name_is_enough_and_the_cookie_is_the_browsers_alone() {
    let stage = Stage::in_memory().await;
    let mut browser = Browser::new(&stage);
    let page = browser.get("/tasks?state=working").await;
    assert_eq!((page.status, page.header("location")), (303, "/sign-in?next=%2Ftasks%3Fstate%3Dworking"));
    browser.ok("/sign-in?next=%2Ftasks").await.has("development mode").has("value=\"/tasks\"");
    let page = browser.post("/sign-in", &[("token", "two words"), ("next", "/")]).await;
    assert_eq!(page.status, 401);
    page.has("expected the name of an agent");
    let page = browser.sign_in("planner").await;
    let cookie = page.header("set-cookie");
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert!(pair.starts_with(&format!("handover-{}=", stage.address.port())), "{cookie}");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=43200");
    assert_eq!(pair.split_once('=').unwrap().1.len(), 43, "256 random bits");
    browser.ok("/").await.has("planner").has("Nothing waits for planner");
    let elsewhere = browser.post("/sign-in", &[("token", "planner"), ("next", "//evil.example/")]).await;
    assert_eq!(elsewhere.header("location"), "/");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_is_hashed_at_rest_listed_and_ended() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (one, other) =
        (Browser::signed_in(&stage, "planner").await, Browser::signed_in(&stage, "planner").await);
    let secret = one.cookie.as_ref().unwrap().split_once('=').unwrap().1.to_owned();
    let kept = stage.store.records("signin", "", None, 10).unwrap();
    assert_eq!(kept.len(), 2);
    for record in &kept {
        assert!(!record.key.contains(&secret), "of the secret only a hash is stored");
        assert!(!record.value.windows(secret.len()).any(|found| found == secret.as_bytes()));
    }
    let page = one.ok("/sign-ins").await;
    assert_eq!((page.text.matches("name=\"name\"").count(), page.text.matches("this one").count()), (2, 1));
    let own = stage.desk.sign_in_name(&secret);
    let name = kept.iter().map(|record| record.key.to_string()).find(|name| *name != own).unwrap();

    // Another agent ends nothing of it.
    let worker = Browser::signed_in(&stage, "worker").await;
    worker.ok("/sign-ins").await.lacks(&name);
    let page = worker.post("/sign-ins/end", &[("name", &name)]).await;
    assert_eq!(page.status, 422);
    page.has("there is no such sign-in");
    other.ok("/").await;

    one.does("/sign-ins/end", &[("name", &name)]).await.has("The sign-in was ended.");
    assert_eq!(other.get("/").await.header("location"), "/sign-in?next=%2F");
    let page = one.post("/sign-out", &[]).await;
    assert_eq!(page.header("location"), "/sign-in");
    let cleared = page.header("set-cookie");
    let (pair, attributes) = cleared.split_once("; ").unwrap();
    assert!(pair.ends_with('=') && one.cookie.as_ref().unwrap().starts_with(pair), "{cleared}");
    assert!(attributes.contains("Max-Age=0;") || attributes.ends_with("Max-Age=0"), "{cleared}");
    assert_eq!(one.get("/").await.status, 303, "a copy of the cookie is of no use");
    assert_eq!(stage.store.records("signin", "", None, 10).unwrap().len(), 1, "that of the worker");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_ends_with_its_token_and_unknown_tokens_are_refused() {
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = entry("secret", "agent = \"planner\"");
    let tokens = Arc::new(Tokens::parse(&file).unwrap());
    let identity = Identity::Tokens(Arc::clone(&tokens));
    let stage = Stage::with(|set| set.identity = identity).await;
    let mut browser = Browser::new(&stage);
    browser.ok("/sign-in").await.lacks("development mode");
    for wrong in ["planner", "", "secre"] {
        let page = browser.sign_in(wrong).await;
        assert_eq!((page.status, page.header("set-cookie")), (401, ""), "{wrong:?}");
    }
    assert_eq!(browser.sign_in("secret").await.status, 303);
    browser.ok("/").await;
    stage.desk.gate.replace_tokens(&tokens, &entry("secret", "agent = \"planner\"\nrevoked = true")).unwrap();
    assert_eq!(browser.get("/").await.status, 303);
    // Nor does a cookie that was made up, or sent twice, let anybody in.
    for cookie in ["handover-1=x", &format!("handover-{}=x", stage.address.port())] {
        browser.cookie = Some(cookie.to_owned());
        assert_eq!(browser.get("/").await.status, 303);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_origins_change_nothing() {
    let stage = Stage::in_memory().await;
    let browser = Browser::signed_in(&stage, "planner").await;
    let own = format!("http://{}", stage.address);
    let before = stage.written();
    let fields = [("agent", "worker"), ("title", "dig"), ("queue", "true")];
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", own.as_str())],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:1")],
    ] {
        for target in ["/delegate", "/sign-out", "/sign-in", "/sign-ins/end", "/tasks/x/cancel"] {
            let page = browser.post_from(target, &fields, headers).await;
            assert_eq!(page.status, 403, "{target} {headers:?}");
            page.has("ORIGIN_REFUSED");
        }
    }
    assert_eq!(stage.written(), before);
    // What is no form is not read as one.
    let headers = [("sec-fetch-site", "same-origin"), ("content-type", "text/plain")];
    assert_eq!(browser.send("POST", "/delegate", &headers, "agent=worker".to_owned()).await.status, 415);
    for headers in [&[("origin", own.as_str())][..], &[]] {
        assert_eq!(browser.post_from("/delegate", &fields, headers).await.status, 303, "{headers:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_is_framed_or_served_under_another_name_or_runs_what_is_not_ours() {
    let stage = Stage::in_memory().await;
    let browser = Browser::signed_in(&stage, "planner").await;
    for target in ["/", "/tasks", "/tasks/none", "/agents", "/health", "/sign-in", "/delegate", "/sign-ins"] {
        let page = browser.get(target).await;
        let policy = page.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(
            (page.header("cache-control"), page.header("x-content-type-options")),
            ("no-store", "nosniff")
        );
        page.lacks(" style=").lacks(" onclick").lacks("<script>");
        let page = browser.send("GET", target, &[("host", "evil.example")], String::new()).await;
        assert_eq!(page.status, 421, "{target}");
        page.lacks("planner");
    }
    let page = browser.ok("/").await;
    let mut assets = 0;
    for part in page.text.split("\"/assets/").skip(1) {
        let asset = browser.get(&format!("/assets/{}", part.split('"').next().unwrap())).await;
        assert_eq!((asset.status, asset.header("x-content-type-options")), (200, "nosniff"));
        assert!(asset.header("cache-control").contains("immutable"));
        assets += 1;
    }
    assert_eq!(assets, 4, "the icon twice");
    assert_eq!(browser.get("/assets/console-0.js").await.status, 404);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_the_cookie_goes_over_nothing_else() {
    let stage = Stage::in_memory().await;
    let config = handover_server::config::Config::default();
    let mut settings = handover_server::face::console::Settings::new(&config);
    assert!(!settings.secure);
    settings.secure = true;
    let console = handover_server::face::console::Console::new(
        stage.desk.clone(),
        settings,
        &stage.metrics,
        handover_server::http::Checks::new(Vec::new()),
    );
    let router = handover_server::face::console::router(console);
    let request = axum::http::Request::post("/sign-in")
        .header("host", "handover.example")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(axum::body::Body::from("token=planner"))
        .unwrap();
    let mut router = router;
    let answer = tower_service::Service::call(&mut router, request).await.unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-handover-443="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=43200; Secure"), "{cookie}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_web_token_signs_in_for_no_longer_than_it_counts_and_its_key_is_listed() {
    let (key, other) = (Key::ed("one"), Key::ed("other"));
    let verifier = Arc::new(issuer::verifier(&[&key]));
    let identity = Identity::Jwt(Arc::clone(&verifier), Arc::default());
    let stage = Stage::with(|set| set.identity = identity).await;
    let ends = issuer::now() + 600;
    let token = key.token(&issuer::claims_with(json!({ "exp": ends, "roles": ["observer"] })));
    let mut browser = Browser::new(&stage);
    assert_eq!(browser.sign_in(&other.token(&issuer::claims())).await.status, 401);
    assert_eq!(browser.sign_in(&token).await.status, 303);
    browser.ok("/").await.has("planner").has("(observer)");
    let secret = browser.cookie.as_ref().unwrap().split_once('=').unwrap().1;
    let caller = stage.desk.signed_in(secret, Face::Console, None).await.unwrap();
    let shown = stage.desk.sign_ins(&caller).await.unwrap();
    assert_eq!(
        shown.iter().map(|shown| shown.ends_at.0).collect::<Vec<_>>(),
        [(ends + 60) * 1000],
        "with the skew"
    );
    verifier.set_keys(KeySet::parse(issuer::set(&[&other]).as_bytes()).unwrap());
    assert_eq!(browser.get("/").await.status, 303, "its key was withdrawn");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_in_again_ends_the_sign_in_of_that_browser() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let mut browser = Browser::signed_in(&stage, "planner").await;
    let (before, elsewhere) = (browser.clone(), Browser::signed_in(&stage, "planner").await);
    assert_eq!(browser.sign_in("wrong").await.status, 401);
    before.ok("/").await;
    assert_eq!(browser.sign_in("worker").await.status, 303);
    browser.ok("/").await.has("Nothing waits for worker");
    assert_eq!(before.get("/").await.status, 303, "nobody has a use for it");
    elsewhere.ok("/").await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_comes_too_late_leads_back_to_its_page() {
    let stage = Stage::in_memory().await;
    let nobody = Browser::new(&stage);
    for (target, next) in [
        ("/tasks/some-task/steer", "%2Ftasks%2Fsome-task"),
        ("/delegate", "%2Fdelegate"),
        ("/bulk", "%2Ftasks"),
        ("/sign-ins/end", "%2Fsign-ins"),
        ("/sign-out", "%2F"),
    ] {
        let page = nobody.post(target, &[]).await;
        assert_eq!((page.status, page.header("location")), (303, &*format!("/sign-in?next={next}")));
    }
    stage.stop().await;
}
