"""Several threads and processes: calls at once, tensors freed by another thread, hooks across threads, fork after import."""
import gc
import multiprocessing
import os
import queue
import subprocess
import sys
import threading

import pytest
import tally
from tally import nn


def run(count, work):
    errors = []

    def guarded(i):
        try:
            work(i)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not errors and not any(t.is_alive() for t in threads), errors


def test_calls_at_once_give_the_same_bits():
    x = tally.randn(64, 64)
    expected = ((x @ x).softmax(-1).sum(0), (x * 2 + 1).exp().mean(1), x.sort(0).values)

    def work(i):
        for _ in range(30):
            got = ((x @ x).softmax(-1).sum(0), (x * 2 + 1).exp().mean(1), x.sort(0).values)
            assert all(tally.equal(a, b) for a, b in zip(got, expected))

    run(4, work)


def test_tensors_are_freed_by_another_thread():
    gc.collect()
    before = tally.memory_allocated()
    handed = queue.Queue(maxsize=8)

    def work(i):
        if i % 2 == 0:
            for k in range(200):
                x = tally.randn(100, requires_grad=True)
                x.register_hook(lambda g: g)
                handed.put((x * k).sum())
            handed.put(None)
        else:
            while (loss := handed.get()) is not None:
                loss.backward()

    run(4, work)
    gc.collect()
    assert tally.memory_allocated() == before


def test_training_in_each_thread():
    losses = [None] * 4

    def work(i):
        weight = tally.zeros(8, 1, requires_grad=True)
        x = tally.arange(32, dtype=tally.float32).view(4, 8) / 32
        for _ in range(50):
            loss = nn.functional.mse_loss(x @ weight, tally.ones(4, 1))
            loss.backward()
            with tally.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
        losses[i] = loss.item()

    run(4, work)
    assert len(set(losses)) == 1 and losses[0] < 0.3


def test_a_graph_of_one_thread_runs_backward_in_another():
    x = tally.ones(3, requires_grad=True)
    loss = (x * x).sum()
    run(1, lambda i: loss.backward())
    assert x.grad.tolist() == [2, 2, 2]


def child(results):
    x = tally.ones(300, 300, requires_grad=True)
    (x @ x).sum().backward()
    results.put(x.grad[0, 0].item())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_kernels_ran():
    child(queue.Queue())  # threads of the library are there
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=child, args=(results,)) for _ in range(2)]
    for p in children:
        p.start()
    try:
        assert [results.get(timeout=60) for _ in children] == [600, 600]
    finally:
        for p in children:
            p.join(10)
            if p.is_alive():
                p.kill()
    assert [p.exitcode for p in children] == [0, 0]


def test_threads_at_the_end_of_the_process():
    done = subprocess.run([sys.executable, "-c", """
import threading, tally
x = tally.ones(200, 200, requires_grad=True)
x.register_hook(lambda g: g)
def work():
    while True:
        (x @ x).sum()
threading.Thread(target=work, daemon=True).start()
(x @ x).sum()
"""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
