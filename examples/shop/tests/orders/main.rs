//! All six services and their customers on loopback: orders go on, right to the cent, while instances end and come back.

mod house;

use anyhow::{Context, Result, ensure};
use house::{Customers, House};
use shop::report::{Line, Summary};

/// Waits until so many seconds have passed in which orders were taken.
fn see_orders(customers: &mut Customers, mut seconds: u32) -> Result<()> {
    while seconds > 0 {
        match customers.next()? {
            Line::Second(second) if second.orders > 0 => seconds -= 1,
            Line::Wrong(trouble) => anyhow::bail!("{trouble}"),
            Line::Second(_) | Line::Failed(_) | Line::Summary(_) => {}
        }
    }
    Ok(())
}

fn end(customers: Customers) -> Result<Summary> {
    let summary = customers.end()?;
    println!("{summary}");
    ensure!(summary.orders > 20, "hardly anything was ordered: {summary}");
    Ok(summary)
}

#[test]
fn the_loss_and_return_of_any_instance_costs_no_order() -> Result<()> {
    let mut house = House::open("loss")?;
    let mut customers = house.customers(20)?;
    see_orders(&mut customers, 1)?;
    for service in ["catalog", "payment", "recommendation", "checkout", "front", "cart"] {
        house.kill(service)?;
        // There is only one cart: its clients wait until it is back.
        if service != "cart" {
            see_orders(&mut customers, 1)?;
        }
        house.start_again(service)?;
        see_orders(&mut customers, 1)?;
    }
    let summary = end(customers)?;
    ensure!(summary.is_good(), "{summary}");
    Ok(())
}

#[test]
fn an_instance_that_is_told_to_stop_serves_those_who_are_there() -> Result<()> {
    let mut house = House::open("stop")?;
    let mut customers = house.customers(20)?;
    for service in ["front", "checkout"] {
        see_orders(&mut customers, 1)?;
        house.stop(service)?;
        see_orders(&mut customers, 2)?;
        ensure!(house.has_ended(service)?, "{service} does not end by itself");
        house.start_again(service)?;
    }
    let summary = end(customers)?;
    ensure!(summary.is_good(), "{summary}");
    Ok(())
}

#[test]
fn a_shop_without_its_till_sells_nothing_and_goes_on_when_it_is_back() -> Result<()> {
    let mut house = House::open("till")?;
    let mut customers = house.customers(20)?;
    see_orders(&mut customers, 1)?;
    house.kill_all("payment")?;
    while !matches!(customers.next()?, Line::Failed(_)) {}
    house.start_all("payment")?;
    see_orders(&mut customers, 2)?;
    let summary = end(customers)?;
    ensure!(summary.failed > 0 && summary.wrong == 0, "{summary}");
    Ok(())
}

#[test]
fn people_get_a_page_and_a_refusal_that_says_what_to_do() -> Result<()> {
    let house = House::open("people")?;
    let page = house.ask("GET / HTTP/1.0", "")?;
    ensure!(page.starts_with("HTTP/1.0 200") && page.contains("</html>"), "{page}");
    let put = |path: &str, body: &str| house.ask(&format!("PUT /api/customers/ada{path} HTTP/1.0"), body);
    put("/cart/barometer", r#"{"quantity": 2}"#)?;
    for (agreement, reason) in [
        (r#"{"card": "4000000000000001", "total": 12900}"#, "wrong digit"),
        (r#"{"card": "4000000000000002", "total": 1}"#, "12900 cents now"),
    ] {
        let said = put("/orders/one", agreement)?;
        ensure!(said.starts_with("HTTP/1.0 409") && said.contains(reason), "{said}");
    }
    let said = put("/orders/one", r#"{"card": "4000000000000002", "total": 12900}"#)?;
    let order: serde_json::Value = serde_json::from_str(said.split("\r\n\r\n").nth(1).context("no body")?)?;
    ensure!(order["said"]["receipt"]["amount"] == 12900, "{order}");
    ensure!(order["by"][0]["service"] == "front" && order["by"][1]["service"] == "checkout", "{order}");
    Ok(())
}
