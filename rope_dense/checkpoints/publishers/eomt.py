"""Key tables of EoMT on DINOv3, the authors' (tue-mps/eomt) and transformers', and of PMT.

The backbone in the authors' files is stored as differences from DINOv3's weights, in files of
transformers as weights; ``checkpoints.detectors.read_eomt`` adds them. Both give the backbone the
names of Hugging Face's DINOv3. Names are from the published codes, checked with random weights
against transformers' model in tests/models/test_eomt_checkpoints.py. Files of PMT (tue-mps/pmt)
have no backbone; checked against its model in tests/models/test_pmt.py.
"""

from ..keys import Rows, rows_within

HF: Rows = [
    ('embeddings.*', 'backbone.embeddings.*'),
    ('layers.*', 'backbone.layer.*'),
    ('layernorm.*', 'backbone.norm.*'),
    ('query.weight', 'query.weight'),
    ('class_predictor.*', 'class_head.*'),
    ('mask_head.fc{1,2,3}.*', 'mask_head.{0,2,4}.*'),
    ('upscale_block.block.#.{conv1,conv2,layernorm2d}.*', 'upscale.#.{0,2,3}.*'),
    ('attn_mask_probs', None),  # of the training so far
    ('criterion.empty_weight', None),  # class weights of the loss
]


def head_rows(theirs: str) -> Rows:
    """Queries and heads in files of either authors."""
    return [
        (f'{theirs}.q.weight', 'query.weight'),
        (f'{theirs}.class_head.*', 'class_head.*'),
        (f'{theirs}.mask_head.#.*', 'mask_head.#.*'),
        (theirs + '.upscale.#.{conv1,conv2,norm}.*', 'upscale.#.{0,2,3}.*'),
        (f'{theirs}.attn_mask_probs', None),
        ('network.encoder.pixel_{mean,std}', None),  # of the data preprocessor
        ('criterion.empty_weight', None),
    ]


ENCODER = 'network.encoder.backbone'
AUTHORS: Rows = [
    (f'{ENCODER}.patch_embed.*', 'backbone.embeddings.*'),
    (f'{ENCODER}.blocks.*', 'backbone.layer.*'),
    (f'{ENCODER}.norm.*', 'backbone.norm.*'),
    *head_rows('network'),
]
PMT: Rows = [
    ('network.bn.#.*', 'laterals.#.norm.*'),
    ('network.decoder.lateral_projections.#.*', 'laterals.#.mlp.*'),
    ('network.decoder.scalers.#', 'laterals.#.scale'),
    *rows_within(
        'network.decoder.blocks.#',
        'blocks.#',
        ('attention.{q,k,v}_proj.weight', 'attn.qkv.weight'),
        ('attention.{q,v}_proj.bias', 'attn.qkv.{q,v}_bias'),
        ('attention.o_proj.*', 'attn.proj.*'),
        ('layer_scale#.lambda1', 'gamma_#'),
        ('mlp.{up,down}_proj.*', 'mlp.{fc1,fc2}.*'),
        ('norm#.*', 'norm#.*'),
    ),
    ('network.decoder.decoder_norm.*', 'norm.*'),
    *head_rows('network.decoder'),
    ('network._attn_mask_probs_fallback', None),
]
