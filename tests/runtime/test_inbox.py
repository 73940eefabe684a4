"""Arrivals, cancellations and alarms, in the order in which the loop must learn of them."""

from dataclasses import replace

import pytest
from toy_requests import toy_request

from paceline.runtime.inbox import Inbox
from paceline.runtime.request import FinishReason


def late_request(**options):
    request = toy_request(3)
    request.options = replace(request.options, **options)
    request.arrival_s = 10.0
    return request


def test_arrivals_come_once_and_in_order():
    inbox, requests = Inbox(8), [toy_request(3, request_id=i) for i in range(3)]
    for request in requests:
        inbox.put(request, 0)
    assert inbox.take(0.0).arriving == tuple(requests)
    assert inbox.take(0.0).arriving == ()


def test_request_cancelled_before_it_was_let_in_is_let_in_first():
    inbox, request = Inbox(8), toy_request(3)
    inbox.put(request, 0)
    inbox.cancel(request)
    intake = inbox.take(0.0)
    assert intake.arriving == (request,)
    assert intake.leaving == ((request, FinishReason.CANCELLED),)
    assert inbox.is_empty


@pytest.mark.parametrize("limit", ["deadline_s", "queue_timeout_s"])
def test_alarm_rings_when_its_time_has_come_and_once(limit):
    inbox, request = Inbox(8), late_request(**{limit: 5.0})
    inbox.put(request, 0)
    assert inbox.take(14.9).leaving == ()
    assert inbox.take(15.0).leaving == ((request, FinishReason.TIMEOUT),)
    assert inbox.take(99.0).leaving == ()


def test_queue_timeout_does_not_concern_a_request_that_has_started():
    inbox, request = Inbox(8), late_request(queue_timeout_s=5.0)
    inbox.put(request, 0)
    inbox.take(11.0)
    request.has_started = True
    assert inbox.take(20.0).leaving == ()


def test_alarms_ring_in_the_order_of_time_not_of_arrival():
    inbox = Inbox(8)
    slow, fast = late_request(deadline_s=9.0), late_request(deadline_s=2.0)
    inbox.put(slow, 0)
    inbox.put(fast, 0)
    assert inbox.take(12.5).leaving == ((fast, FinishReason.TIMEOUT),)
