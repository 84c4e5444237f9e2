"""Draws what the command line describes: draw.py FILE < description.json

FILE ends in .svg, .png or .pdf; what ends otherwise is an SVG file. With --check instead of FILE nothing is read or
drawn, and the exit status says whether it could be. What is no description, or a file that cannot be written, ends the
program with 1 and one line on standard error.

A description is a JSON document; times are in seconds. Of a plan and its run:

    picture         "plan"
    strategy, seconds, bound_seconds, assumed_rates, network_bytes, relays, depth, chunk_bytes
                    figures of the plan, and the simulated time
    hosts           [{name, rack}]; rack is "" where there is none
    ports           [{name, direction, host, bytes_per_second, bytes}]; direction is out or in for a NIC, up or down
                    for a rack, whose host is -1; other hosts are indices into hosts
    routes          [{sender, receiver, root, ports, bytes, latency_seconds, bars}]: bytes that host root held at first,
                    from NIC to NIC; indices of the ports passed; bars are [begin, end] of chunks or runs of them, in
                    order and apart
    critical        [[route, begin, end]]: the chain of chunks that decides the time

Of runs of a pipeline, one below the other:

    picture         "pipeline"
    has_unit        whether times are in seconds; else they are in any unit
    runs            [{title, ranks, microbatches, stage_ranks, planned, measured, transfers}]; measured may be missing
      stage_ranks   by stage, the rank that computes it
      planned, measured
                    {seconds, ops}; ops are [name, begin, end]; "3F7" is forward of stage 3 and microbatch 7, "3B7"
                    backward, "3I7" and "3W7" the gradient of the input and of the weights
      transfers     [direction, from, to, begin, end]: F with activations or B with gradients, from rank to rank

Of steps of layer programs, one below the other:

    picture         "layers"
    steps           [{title, seconds, exposed, ranks}]; exposed is the time in which ranks wait for what is on its way
      ranks         [{ops, lanes}]; ops are [product, begin, end]: F forward, I and W the gradients of the input and of
                    the weights, and "" for what is no product
        lanes       [{name, exposed, spans}]: what moves, by what it is for; spans are [begin, end]

Of a redistribution, what `crossmesh redistribute --output json` prints:

    picture         "redistribution"
    source, destination
                    local types, as text
    steps           [{kind, axes, type, seconds, received_bytes, live_bytes}]; type is what there is after the step
    bound_bytes     that no plan has the neediest device receive less of
    cap_bytes       of live memory; missing where there is none
    baselines       {name: {steps}, name: {refusal}}: the same of other methods; may be missing
    memory          [{devices, live_bytes}]: so many devices with so much live in each step, the fullest first; may be
                    missing
"""

import json
import sys

import layers
import pipeline
import plan_picture
import redistribution
import sheet

DRAWERS = {"layers": layers.draw, "pipeline": pipeline.draw, "plan": plan_picture.draw,
           "redistribution": redistribution.draw}


def main(path: str) -> None:
    if path == "--check":
        return
    try:
        document = json.load(sys.stdin)
        figure = DRAWERS[document["picture"]](document)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        sys.exit(f"expected the description of a picture, found {type(error).__name__}: {error}")
    try:
        sheet.save(figure, path)
    except OSError as error:
        sys.exit(f"writing {path}: {error.strerror}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: draw.py FILE < description.json")
    main(sys.argv[1])
