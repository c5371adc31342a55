"""The templates against ids that are written out; loss and scores of the objective against transformers."""

import math

import numpy as np
import pytest
import torch

from tercet import RowError
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import NliPair, Triplet
from tercet.encoder.generator import load_generator
from tercet.encoder.model.templates import TemplateTokens, label_ids, target_ids
from tercet.synthesis.discriminator import Discriminator
from tercet.training.objectives.generate import GenerateDiscriminate, GenerateSettings, pairs_of
from tercet.training.stages.synthesizer import dev_scores

END = 1
TRIPLET = Triplet("A man plays a guitar.", "Somebody makes music.", ("A man sleeps.",))
PAIR = NliPair("Two dogs run.", "Dogs sleep.", "contradiction")

ENTAIL = ('Write two sentences that are entailment. Sentence 1: "', '" Sentence 2:')
CONTRADICT = ('Write two sentences that are contradictory. Sentence 1: "', '" Sentence 2:')
JUDGE = ('if "', '", does this mean that "', '"? true or false')


@pytest.fixture
def ids(label_tokenizer):
    """Return a function that joins the ids of texts, each tokenised by itself."""

    def join(*texts):
        return [i for text in texts for i in label_tokenizer.encode(text, add_special_tokens=False)]

    return join


def test_ids_are_those_of_the_papers_templates_piece_by_piece(label_tokenizer, ids):
    tokens = TemplateTokens(label_tokenizer, max_tokens=96)
    a, b = "A man plays a guitar.", "Somebody makes music."
    assert tokens("entailment", [a, b]) == [[*ids(ENTAIL[0], text, ENTAIL[1]), END] for text in (a, b)]
    assert tokens("contradiction", [a]) == [[*ids(CONTRADICT[0], a, CONTRADICT[1]), END]]
    assert tokens("discrimination", [a], [b]) == [[*ids(JUDGE[0], a, JUDGE[1], b, JUDGE[2]), END]]
    assert tokens("entailment", [a])[0] != label_tokenizer.encode(ENTAIL[0] + a + ENTAIL[1])  # as one string


def test_every_piece_and_every_sentence_starts_a_word(label_tokenizer):
    found = TemplateTokens(label_tokenizer, max_tokens=96)("discrimination", ["a"], ["b"])[0]
    tokens = label_tokenizer.convert_ids_to_tokens(found)
    text = "".join(tokens[:-1])
    assert text == '▁if▁"▁a▁",▁does▁this▁mean▁that▁"▁b▁"?▁true▁or▁false'
    assert tokens[-2:] == ["▁false", "</s>"]


@pytest.mark.parametrize("max_tokens", [1, 3, 7])
def test_only_sentences_are_cut(label_tokenizer, ids, max_tokens):
    tokens = TemplateTokens(label_tokenizer, max_tokens=max_tokens)
    a, b = "A man plays a guitar.", "b"
    wanted = [*ids(JUDGE[0]), *ids(a)[:max_tokens], *ids(JUDGE[1]), *ids(b)[:max_tokens], *ids(JUDGE[2]), END]
    assert tokens("discrimination", [a], [b]) == [wanted]
    assert target_ids(label_tokenizer, [a], max_tokens=max_tokens + 1) == [[*ids(a)[:max_tokens], END]]


@pytest.fixture
def objective(synthesizer_folder):
    def make(family="t5", **settings):
        model, tokenizer = load_generator(str(synthesizer_folder(family)))
        return GenerateDiscriminate(model.eval(), tokenizer, GenerateSettings(**settings)), tokenizer

    return make


def test_a_triplet_gives_four_instances_and_a_labelled_pair_two(objective, ids):
    made, _ = objective()
    a, b, c = TRIPLET.anchor, TRIPLET.positive, TRIPLET.negatives[0]
    assert made.examples([TRIPLET]) == [
        ([*ids(ENTAIL[0], a, ENTAIL[1]), END], [*ids(b), END]),
        ([*ids(CONTRADICT[0], a, CONTRADICT[1]), END], [*ids(c), END]),
        ([*ids(JUDGE[0], a, JUDGE[1], b, JUDGE[2]), END], [*ids("true"), END]),
        ([*ids(JUDGE[0], a, JUDGE[1], c, JUDGE[2]), END], [*ids("false"), END]),
    ]
    assert made.examples([PAIR]) == [
        ([*ids(CONTRADICT[0], PAIR.premise, CONTRADICT[1]), END], [*ids(PAIR.hypothesis), END]),
        ([*ids(JUDGE[0], PAIR.premise, JUDGE[1], PAIR.hypothesis, JUDGE[2]), END], [*ids("false"), END]),
    ]


def test_a_single_text_is_written_as_it_is_and_follows_from_itself(objective, ids, tmp_path):
    (tmp_path / "texts.txt").write_text("Two dogs run.\n")
    made, _ = objective()
    (_, written), (_, judged) = made.examples(list(open_rows(tmp_path / "texts.txt", kind="inference")))
    assert written == [*ids("Two dogs run."), END]
    assert judged == [*ids("true"), END]


def test_every_batch_has_as_many_instances_of_each_task(objective, tmp_path, label_tokenizer):
    triplets = [f"premise {i}\tpositive {i}\tnegative {i}\n" for i in range(9)]
    (tmp_path / "triplets.tsv").write_text("anchor\tpositive\tnegative\n" + "".join(triplets))
    labels = ("entailment", "neutral", "contradiction", "-")
    pairs = [f"premise {i}\thypothesis {i}\t{labels[i % 4]}\n" for i in range(20)]
    (tmp_path / "pairs.tsv").write_text("premise\thypothesis\tlabel\n" + "".join(pairs))
    rows = open_rows([tmp_path / "triplets.tsv", tmp_path / "pairs.tsv"], kind="inference")
    assert rows.num_rows == 9 + 10
    counts = [{key: source[key] for key in ("num_rows", "num_unlabelled")} for source in rows.describe()["sources"]]
    assert counts == [{"num_rows": 9, "num_unlabelled": 0}, {"num_rows": 10, "num_unlabelled": 10}]
    made, _ = objective()
    labels = {(*ids, END) for ids in ([i] for i in label_ids(label_tokenizer))}
    seen = []
    for batch in rows.batches(batch=4, seed=1, epochs=1):
        seen += batch
        examples = made.examples(batch)
        num_judged = sum(tuple(example.target) in labels for example in examples)
        assert num_judged == len(examples) / 2
        assert len(examples) == sum(4 if isinstance(row, Triplet) else 2 for row in batch)
    assert {row.label for row in seen if isinstance(row, NliPair)} == {"entailment", "contradiction"}
    assert {type(row) for row in seen} == {Triplet, NliPair}


def test_a_file_without_labels_or_negatives_is_refused(tmp_path):
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\na\tb\n")
    with pytest.raises(RowError, match="which are not known"):
        open_rows(tmp_path / "pairs.tsv", kind="inference")


@pytest.mark.parametrize(
    ("family", "alike", "label_weight"),
    [("t5", False, 1), ("t5", True, 1), ("t5", True, 3), ("t5-1.1", False, 1), ("mt5", False, 1)],
)
def test_a_step_in_pieces_has_the_gradients_of_transformers_loss(objective, family, alike, label_weight):
    made, tokenizer = objective(family, max_batch_tokens=60, weigh_alike=alike, label_weight=label_weight)
    model, batch = made.module, [TRIPLET, PAIR, Triplet("a", "b", ("c", "d e f"))]
    result = made.step(batch)
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    examples = made.examples(batch)
    assert len(examples) == 4 + 2 + 6
    total = sum(len(target) for _, target in examples)
    loss = sum(
        model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).loss
        * (1 / len(examples) if alike else len(target) / total)
        * (label_weight if target[0] in label_ids(tokenizer) else 1)
        for source, target in examples
    )
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("family", ["t5", "t5-1.1"])
def test_perplexity_accuracy_and_score_are_those_written_out(objective, family):
    made, tokenizer = objective(family)
    model = made.module
    rows = [TRIPLET, PAIR, Triplet("a man", "music", ("Dogs run.",))]
    pairs = [pair for row in rows for pair in pairs_of(row)]
    loss, num_tokens, num_right = 0.0, 0, 0
    true, false = label_ids(tokenizer)
    with torch.no_grad():
        for source, target in made.generation(pairs):
            output = model(input_ids=torch.tensor([source]), labels=torch.tensor([target]))
            loss, num_tokens = loss + output.loss.item() * len(target), num_tokens + len(target)
        for (source, _), pair in zip(made.discrimination(pairs), pairs, strict=True):
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
            num_right += bool(logits[true] > logits[false]) == (pair.label == "entailment")
    found = dev_scores(made, Discriminator(model, tokenizer, precision="exact", max_tokens=96), pairs)
    perplexity, accuracy = math.exp(loss / num_tokens), num_right / len(pairs)
    assert found["perplexity"] == pytest.approx(perplexity, rel=1e-4)
    assert found["accuracy"] == pytest.approx(100 * accuracy)
    assert found["dev"] == pytest.approx(100 * accuracy - 10 * perplexity, rel=1e-4)


def test_the_score_counts_what_is_right(objective):
    made, _ = objective()
    pairs = [*pairs_of(TRIPLET), PAIR]

    def judge(premises, hypotheses):
        assert (premises[2], hypotheses[2]) == (PAIR.premise, PAIR.hypothesis)
        return np.array([0.9, 0.4, 0.8], np.float32)

    assert dev_scores(made, judge, pairs)["accuracy"] == pytest.approx(100 * 2 / 3)


def test_a_title_is_written_and_not_judged(objective, ids, tmp_path):
    made, _ = objective()
    (tmp_path / "titles.jsonl").write_text('{"anchor": "A guitar", "positive": "A man plays a guitar."}\n')
    [row] = open_rows({"path": str(tmp_path / "titles.jsonl"), "kind": "titles"}, kind="inference")
    [(source, target)] = made.examples([row])
    assert source == [*ids("Write a short title for this text:", "A man plays a guitar."), END]
    assert target == [*ids("A guitar"), END]
    with_label = dev_scores(made, lambda first, second: np.full(len(first), 0.2), [row, PAIR])
    assert with_label["accuracy"] == 100
