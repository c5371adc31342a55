"""The Synthesizer against transformers' forward and `generate`, and against the exact nucleus distribution."""

import json
import logging
import shutil
import sys
from collections import Counter

import ctranslate2
import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForSeq2SeqLM

from tercet import InputError, ModelError, NonFiniteError, SettingError, Synthesizer, TextError
from tercet.encoder.generator import load_generator, save_generator
from tercet.encoder.model.templates import TemplateTokens, label_ids
from tercet.storage.user_cache import cache_folder
from tercet.synthesis.discriminator import Discriminator
from tercet.synthesis.engines import CTranslate2Engine, TransformersEngine
from tercet.synthesis.settings import Sampling

PREMISES = ["A man is playing a guitar on the stage.", "Stocks dropped.", "Two dogs run through deep snow", "a", ""]
HYPOTHESES = ["Somebody plays an instrument.", "The stock market fell sharply on Monday." * 9, "", "Dogs run.", "a man"]
FAMILIES = ["t5", "t5-1.1", "mt5", "umt5"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sharper(synthesizer_folder, tmp_path):
    """Return a folder whose model tells its tokens apart, so that greedy outputs are not all one token."""

    def make(family, strength=0.1):
        model, tokenizer = load_generator(str(synthesizer_folder(family)))
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "decoder.block" in name and weight.dim() == 2:
                    weight.add_(torch.randn(weight.shape, generator=generator) * strength)
            if family in ("t5-1.1", "mt5"):
                model.lm_head.weight.mul_(0.1)  # random heads of these are so wide that all is certain
        save_generator(model, tokenizer, tmp_path / family)
        return tmp_path / family

    return make


def written_out_ids(tokenizer, *parts, max_tokens):
    """Pieces and sentences, each by itself, and the end."""
    ids = []
    for i, part in enumerate(parts):
        own = tokenizer(part, add_special_tokens=False)["input_ids"]
        ids += own[:max_tokens] if i % 2 else own
    return [*ids, 1]


def first_step(folder, tokenizer, premise, hypothesis):
    """P(true) by the forward of transformers, the whole head and one pair at a time."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    parts = ('if "', premise, '", does this mean that "', hypothesis, '"? true or false')
    ids = written_out_ids(tokenizer, *parts, max_tokens=128)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
    return logits[label_ids(tokenizer)].softmax(0)[0].item()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_probability_of_true_is_that_of_transformers_forward(sharper, label_tokenizer, family):
    folder = sharper(family)
    wanted = [first_step(folder, label_tokenizer, p, h) for p, h in zip(PREMISES, HYPOTHESES, strict=True)]
    assert max(wanted) - min(wanted) > 0.01
    synthesizer = Synthesizer.load(folder, engine="transformers", device="cpu", precision="exact")
    found = synthesizer.score(PREMISES, HYPOTHESES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_the_way_for_other_devices_gives_the_same_probabilities(sharper, monkeypatch):
    model, tokenizer = load_generator(str(sharper("t5")))
    packed = Discriminator(model, tokenizer, precision="exact", max_tokens=128)
    monkeypatch.setattr("tercet.synthesis.discriminator.packed_shape", lambda config, weights: None)
    padded = Discriminator(model, tokenizer, precision="exact", max_tokens=128)
    np.testing.assert_allclose(padded(PREMISES, HYPOTHESES), packed(PREMISES, HYPOTHESES), atol=1e-5)
    with pytest.raises(SettingError, match="int8"):
        Discriminator(model, tokenizer, precision="int8", max_tokens=128)


@pytest.mark.parametrize(("precision", "error"), [("fast", 0.05), ("int8", 0.1)])
def test_other_precisions_are_near(sharper, precision, error):
    model, tokenizer = load_generator(str(sharper("t5")))
    exact = Discriminator(model, tokenizer, precision="exact", max_tokens=128)(PREMISES, HYPOTHESES)
    found = Discriminator(model, tokenizer, precision=precision, max_tokens=128)(PREMISES, HYPOTHESES)
    assert 0 < np.abs(found - exact).max() < error


def prompts(tokenizer):
    return TemplateTokens(tokenizer, max_tokens=96)("entailment", PREMISES)


def engine_of(name, folder, tmp_path):
    model, tokenizer = load_generator(str(folder))
    if name == "transformers":
        return TransformersEngine(model, precision="exact"), tokenizer
    return CTranslate2Engine(model, precision="exact", fingerprint=str(folder), cache=tmp_path / "kept"), tokenizer


@pytest.mark.parametrize("family", ["t5", "t5-1.1", "mt5"])
def test_both_engines_write_what_greedy_search_of_transformers_writes(sharper, tmp_path, family):
    folder = sharper(family, strength=0.3)
    model, tokenizer = load_generator(str(folder))
    rows = prompts(tokenizer)
    wanted = []
    for row in rows:
        ids = model.eval().generate(torch.tensor([row]), do_sample=False, max_new_tokens=12)[0, 1:].tolist()
        wanted.append([ids[: ids.index(1)] if 1 in ids else ids])
    assert len({tuple(samples[0]) for samples in wanted}) > 1
    for name in ("transformers", "ctranslate2"):
        engine, _ = engine_of(name, folder, tmp_path)
        greedy = Sampling(top_k=1, max_new_tokens=12)
        assert engine(rows, greedy, num_samples=1, seed=3) == wanted


def test_texts_alone_are_given_what_they_entail(sharper, label_tokenizer):
    folder = sharper("t5", strength=0.3)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    wanted = []
    for premise in PREMISES:
        parts = ('Write two sentences that are entailment. Sentence 1: "', premise, '" Sentence 2:')
        ids = torch.tensor([written_out_ids(label_tokenizer, *parts, max_tokens=96)])
        made = model.generate(ids, do_sample=False, max_new_tokens=12)
        wanted.append([label_tokenizer.decode(made[0], skip_special_tokens=True).strip()])
    synthesizer = Synthesizer.load(folder, engine="transformers", device="cpu", precision="exact")
    greedy = Sampling(top_k=1, max_new_tokens=12)
    assert synthesizer.generate(PREMISES, sampling=greedy) == wanted
    assert synthesizer.generate(PREMISES, sampling=greedy, relation="contradiction") != wanted


def nucleus(logits, sampling):
    """The exact distribution: temperature, the most likely k, then the fewest of them that have p together."""
    values, ids = (logits.double() / sampling.temperature).sort(descending=True)
    values = values[: sampling.top_k]
    shares = values.softmax(0)
    num = next(i for i in range(1, len(shares) + 1) if shares[:i].sum() >= sampling.top_p or i == len(shares))
    shares = shares[:num] / shares[:num].sum()
    return dict(zip(ids[:num].tolist(), shares.tolist(), strict=True))


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
@pytest.mark.parametrize("family", ["t5", "t5-1.1"])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(top_p=0.6, top_k=30), Sampling(top_p=0.9, top_k=None), Sampling(top_p=1.0, top_k=8)],
)
def test_tokens_are_drawn_as_often_as_the_exact_nucleus_has_them(synthesizer_folder, tmp_path, name, family, sampling):
    temperature = {"t5": 2.0, "t5-1.1": 9.0}[family]  # at which more than one of the random scores is likely
    sampling = sampling.model_copy(update={"max_new_tokens": 2, "temperature": temperature})
    engine, _ = engine_of(name, synthesizer_folder(family), tmp_path)
    row = [7, 20, 9, 1]
    model, _ = load_generator(str(synthesizer_folder(family)))
    texts = engine([row], sampling, num_samples=4000, seed=11)[0]
    with torch.no_grad():
        first = model.eval()(input_ids=torch.tensor([row]), decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
        common = nucleus(first, sampling)
        token = max((t for t in common if t != 1), key=common.get)
        second = model(input_ids=torch.tensor([row]), decoder_input_ids=torch.tensor([[0, token]])).logits[0, 1]
    chosen = [text[1] if len(text) > 1 else 1 for text in texts if text and text[0] == token]
    for exact, drawn in ((common, [text[0] if text else 1 for text in texts]), (nucleus(second, sampling), chosen)):
        assert len(exact) > 5
        assert set(drawn) <= exact.keys()
        assert p_value(Counter(drawn), exact) > 1e-6


def p_value(counts, exact):
    """Pearson's test; tokens that are expected less than five times count as one."""
    expected = {token: share * counts.total() for token, share in exact.items()}
    rare = [token for token in exact if expected[token] < 5]
    groups = [[token] for token in exact if token not in rare] + ([rare] if rare else [])
    return chisquare(
        [sum(counts[token] for token in group) for group in groups],
        [sum(expected[token] for token in group) for group in groups],
    ).pvalue


def test_each_thread_of_ctranslate2_keeps_its_own_seed(synthesizer_folder, monkeypatch):
    synthesizer = Synthesizer.load(synthesizer_folder(), engine="ctranslate2", device="cpu")
    open_translator = CTranslate2Engine._open

    class SeededElsewhere:
        def __init__(self, engine, *, num_threads):
            self._translator = open_translator(engine, num_threads=num_threads)

        def translate_batch(self, *args, **options):
            found = self._translator.translate_batch(*args, **options)
            ctranslate2.set_random_seed(999)
            return found

    def write():
        return synthesizer.generate(PREMISES, sampling=Sampling(max_new_tokens=8, temperature=2.0), num_samples=4)

    wanted = write()
    monkeypatch.setattr(CTranslate2Engine, "_open", lambda engine, **options: SeededElsewhere(engine, **options))
    assert write() == wanted


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
class TestGenerating:
    def test_torch_keeps_its_cores(self, synthesizer_folder, name):
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            synthesizer = Synthesizer.load(synthesizer_folder(), engine=name, device="cpu")
            assert torch.get_num_threads() == 3
            synthesizer.generate(PREMISES, sampling=Sampling(max_new_tokens=2))
            assert torch.get_num_threads() == 3
        finally:
            torch.set_num_threads(before)

    def test_the_same_seed_gives_the_same_sentences_and_another_one_others(self, synthesizer_folder, name):
        synthesizer = Synthesizer.load(synthesizer_folder(), engine=name, device="cpu")
        sampling = Sampling(max_new_tokens=8, temperature=2.0)

        def write(seed, **options):
            return synthesizer.generate(PREMISES, relation="entailment", sampling=sampling, seed=seed, **options)

        found = write(1, num_samples=3)
        assert [len(samples) for samples in found] == [3] * len(PREMISES)
        assert found == write(1, num_samples=3)
        torch.rand(3)
        np.random.default_rng()
        assert found == Synthesizer.load(synthesizer_folder(), engine=name, device="cpu").generate(
            PREMISES, relation="entailment", sampling=sampling, seed=1, num_samples=3
        )
        assert found != write(2, num_samples=3)
        assert all(len({*samples}) == len(samples) for samples in found)

    def test_chance_elsewhere_is_not_touched(self, synthesizer_folder, name):
        synthesizer = Synthesizer.load(synthesizer_folder(), engine=name, device="cpu")
        torch.manual_seed(4)
        wanted = torch.rand(2)
        torch.manual_seed(4)
        synthesizer.generate(["a"], relation="contradiction", sampling=Sampling(max_new_tokens=4))
        assert torch.equal(torch.rand(2), wanted)

    def test_nothing_gives_nothing_and_what_is_no_text_is_refused(self, synthesizer_folder, name):
        synthesizer = Synthesizer.load(synthesizer_folder(), engine=name, device="cpu")
        assert synthesizer.generate([], relation="entailment") == []
        assert synthesizer.score([], []).shape == (0,)
        with pytest.raises(TextError, match="text 1: is of type int"):
            synthesizer.generate(["a", 3], relation="entailment")
        with pytest.raises(InputError, match=r"Write \[text\]"):
            synthesizer.generate("a", relation="entailment")
        with pytest.raises(SettingError, match="relation 'neutral'"):
            synthesizer.generate(["a"], relation="neutral")
        with pytest.raises(SettingError, match="num_samples 0"):
            synthesizer.generate(["a"], relation="entailment", num_samples=0)
        with pytest.raises(InputError, match="1 premises and 2 hypotheses"):
            synthesizer.score(["a"], ["a", "b"])

    def test_a_text_of_ten_thousand_words_is_cut_and_no_error(self, synthesizer_folder, name):
        synthesizer = Synthesizer.load(synthesizer_folder(), engine=name, device="cpu")
        long = "word " * 10_000
        assert len(synthesizer.generate([long], relation="entailment", sampling=Sampling(max_new_tokens=3))[0]) == 1
        assert 0 <= synthesizer.score([long], [long])[0] <= 1


class TestLoading:
    def test_a_vocabulary_without_the_labels_is_refused(self, t5_tokenizer, tmp_path):
        t5_tokenizer.save_pretrained(tmp_path / "tokenizer")
        model, tokenizer = load_generator("random:t5-tiny", tokenizer=tmp_path / "tokenizer")
        save_generator(model, tokenizer, tmp_path / "model")
        with pytest.raises(ModelError, match="the vocabulary has no token for 'true'"):
            Synthesizer.load(tmp_path / "model")

    def test_what_does_not_fit_is_refused(self, synthesizer_folder):
        with pytest.raises(SettingError, match="engine 'vllm'"):
            Synthesizer.load(synthesizer_folder(), engine="vllm")
        with pytest.raises(SettingError, match="transformers does not generate in it"):
            Synthesizer.load(synthesizer_folder(), engine="transformers", precision="int8", device="cpu")
        with pytest.raises(SettingError, match="fp16"):
            Synthesizer.load(synthesizer_folder(), precision="fp16")
        with pytest.raises(SettingError, match="is for T5 and mT5"):
            Synthesizer.load(synthesizer_folder("umt5"), engine="ctranslate2", device="cpu")

    def test_without_ctranslate2_the_default_is_transformers(self, synthesizer_folder, monkeypatch):
        fast = Synthesizer.load(synthesizer_folder(), device="cpu")
        monkeypatch.setitem(sys.modules, "ctranslate2", None)
        plain = Synthesizer.load(synthesizer_folder(), device="cpu")
        assert isinstance(fast._engine, CTranslate2Engine)
        assert isinstance(plain._engine, TransformersEngine)
        with pytest.raises(SettingError, match=r"^ctranslate2: is not installed.*tercet\[ct2\]"):
            Synthesizer.load(synthesizer_folder(), device="cpu", engine="ctranslate2")

    def test_the_fingerprint_changes_with_weights_tokenizer_and_engine(self, synthesizer_folder, tmp_path):
        folder = shutil.copytree(synthesizer_folder(), tmp_path / "model")

        def fingerprint(**options):
            return Synthesizer.load(folder, device="cpu", **options).fingerprint()

        found = [fingerprint(engine="transformers"), fingerprint(engine="ctranslate2")]
        assert found == [fingerprint(engine="transformers"), fingerprint()]
        model, tokenizer = load_generator(str(folder))
        with torch.no_grad():
            model.lm_head.weight[5, 5] += 1e-3
        save_generator(model, tokenizer, folder)
        found.append(fingerprint())
        content = json.loads((folder / "tokenizer.json").read_text())
        content["model"]["vocab"][60][0] = "another piece"
        (folder / "tokenizer.json").write_text(json.dumps(content))
        (folder / "SHA256SUMS").unlink()
        found.append(fingerprint())
        assert len(set(found)) == 4

    def test_weights_that_are_not_numbers_are_an_error(self, synthesizer_folder, tmp_path):
        model, tokenizer = load_generator(str(synthesizer_folder()))
        with torch.no_grad():
            model.decoder.final_layer_norm.weight[0] = torch.nan
        save_generator(model, tokenizer, tmp_path / "broken")
        with pytest.raises(NonFiniteError):
            Synthesizer.load(tmp_path / "broken", engine="transformers", device="cpu").score(["a"], ["b"])


class TestConverting:
    def test_a_model_is_converted_once_and_a_broken_conversion_is_made_again(
        self, synthesizer_folder, caplog, monkeypatch
    ):
        def write():
            synthesizer = Synthesizer.load(synthesizer_folder(), engine="ctranslate2", device="cpu")
            return synthesizer.generate(PREMISES, relation="entailment", sampling=Sampling(max_new_tokens=6))

        wanted = write()
        (folder,) = (cache_folder() / "ctranslate2").iterdir()
        before = (folder / "model.bin").stat().st_mtime_ns
        with monkeypatch.context() as context:
            context.setattr(CTranslate2Engine, "_convert", lambda *_: pytest.fail("converted again"))
            assert write() == wanted
        (folder / "model.bin").write_bytes(b"broken")
        with caplog.at_level(logging.WARNING, logger="tercet"):
            assert write() == wanted
        assert "cannot be read and is made again" in caplog.text
        assert (folder / "model.bin").stat().st_mtime_ns > before

    def test_where_nothing_can_be_kept_it_works_all_the_same(self, synthesizer_folder, tmp_path, monkeypatch, caplog):
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        with caplog.at_level(logging.WARNING, logger="tercet"):
            synthesizer = Synthesizer.load(synthesizer_folder(), engine="ctranslate2", device="cpu")
        assert "is not kept for the next time" in caplog.text
        sampling = Sampling(max_new_tokens=4)
        assert len(synthesizer.generate(["a"], relation="entailment", sampling=sampling)) == 1

    def test_converting_leaves_the_model_as_it_is(self, synthesizer_folder, tmp_path):
        model, _ = load_generator(str(synthesizer_folder()))
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        CTranslate2Engine(model, precision="int8", fingerprint="a", cache=tmp_path)
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())

    @pytest.mark.parametrize("family", ["t5", "t5-1.1"])
    def test_probabilities_are_those_of_transformers_in_fp32_and_near_in_int8(
        self, synthesizer_folder, tmp_path, family
    ):
        model, tokenizer = load_generator(str(synthesizer_folder(family)))
        rows, texts = prompts(tokenizer), [[5 + i, 30, 9 * i, 60 - i, 17] for i in range(len(PREMISES))]
        wanted = []
        for row, text in zip(rows, texts, strict=True):
            with torch.no_grad():
                output = model.eval()(input_ids=torch.tensor([row]), decoder_input_ids=torch.tensor([[0, *text]]))
            wanted.append(output.logits[0].log_softmax(1)[range(len(text) + 1), [*text, 1]].numpy())
        found = {}
        for precision in ("exact", "int8"):
            engine = CTranslate2Engine(model, precision=precision, fingerprint="a", cache=tmp_path)
            words = [[[str(i) for i in ids] for ids in lists] for lists in (rows, texts)]
            found[precision] = np.array(
                [result.log_probs for result in engine._open(num_threads=1).score_batch(*words)]
            )
        np.testing.assert_allclose(found["exact"], wanted, atol=1e-3)
        assert np.corrcoef(found["int8"].ravel(), np.ravel(wanted))[0, 1] > 0.95

    @pytest.mark.parametrize("precision", ["auto", "int8", "fast"])
    def test_every_precision_writes(self, synthesizer_folder, precision):
        synthesizer = Synthesizer.load(synthesizer_folder(), engine="ctranslate2", device="cpu", precision=precision)
        found = synthesizer.generate(PREMISES, relation="contradiction", sampling=Sampling(max_new_tokens=6))
        assert len(found) == len(PREMISES)
