# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as P4: which interval a feature is in, which leaf a tree reaches, sums, a choice."""

from __future__ import annotations

from wirewise.models import TreeEnsemble
from wirewise.targets.p4.program import SIGN, Program, lit
from wirewise.targets.p4.tree_plan import SCORE_BITS, TreePlan, additions

SCORE_ZERO = 1 << SCORE_BITS - 1
"""What a score of 0 is as an unsigned word."""
_ALL = (1 << SCORE_BITS) - 1


def infer(program: Program, model: TreeEnsemble, plan: TreePlan, words: dict[int, str]) -> list[str]:
    """The scores, as unsigned words of SCORE_BITS whose zero is SCORE_ZERO."""
    program.stage("in which interval between its thresholds each feature is")
    for feature in plan.thresholds:
        _intervals(program, plan, feature, words[feature])
    scores = [program.meta(SCORE_BITS, f"score{output}") for output in range(model.n_outputs)]
    program.stage("the trees")
    program.do(
        *(
            f"{score} = {lit(SCORE_BITS, base + SCORE_ZERO)};"
            for score, base in zip(scores, plan.base, strict=True)
        )
    )
    for index, leaves in enumerate(plan.leaves):
        if leaves:
            _tree(program, model, plan, index, scores)
    return scores


def _intervals(program: Program, plan: TreePlan, feature: int, word: str) -> None:
    steps, bits = plan.thresholds[feature], plan.code_bits(feature)
    table, action = f"feature_{feature}", f"interval_{feature}"
    code = program.meta(bits, f"code{feature}")
    program.action(action, [(bits, "number")], [f"{code} = number;"])
    program.table(table, [("meta.model", "exact"), (word, "range")], [action], _room(len(steps) + 1))
    program.do(f"{table}.apply();")
    first = 0
    for number, step in enumerate((*steps, SIGN - 1)):
        last = step + SIGN
        if first <= last:
            program.entries.add(table, action, (program.options.number, (first, last)), number)
        first = last + 1


def _tree(program: Program, model: TreeEnsemble, plan: TreePlan, index: int, scores: list[str]) -> None:
    tree, leaves, table = model.trees[index], plan.leaves[index], f"tree_{index}"
    keys = plan.keys(index)
    if model.votes == "majority":
        actions = [f"vote_{index}_{output}" for output in range(model.n_classes)]
        for action, score in zip(actions, scores, strict=True):
            program.action(action, [], [f"{score} = {score} + {lit(SCORE_BITS, 1)};"])
    else:
        actions = [f"leaf_{index}"]
        outputs = [output for output, _ in additions(model, tree, leaves[0].value)]
        body = [f"{scores[output]} = {scores[output]} + v{output};" for output in outputs]
        program.action(actions[0], [(SCORE_BITS, f"v{output}") for output in outputs], body)
    matches = [("meta.model", "exact"), *((f"meta.code{feature}", "range") for feature in keys)]
    program.table(table, matches, actions, _room(len(leaves)))
    program.do(f"{table}.apply();")
    for leaf in leaves:
        box = [leaf.box.get(feature, (0, len(plan.thresholds[feature]))) for feature in keys]
        if model.votes == "majority":
            program.entries.add(table, actions[leaf.value[0]], (program.options.number, *box))
        else:
            program.entries.add(
                table, actions[0], (program.options.number, *box), *(part & _ALL for part in leaf.value)
            )


def _room(entries: int) -> int:
    """Of a table: for this model and, beside it, another one half as large again."""
    return 1 << (2 * entries + entries // 2).bit_length()
