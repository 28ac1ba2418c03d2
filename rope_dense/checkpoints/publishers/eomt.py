"""Key tables of EoMT on DINOv3, the authors' (tue-mps/eomt) and transformers', and of PMT.

The backbone in the authors' files is stored as differences from DINOv3's weights, in files of
transformers as weights; ``checkpoints.models.read_eomt`` adds them. Both tables give the backbone
the names of Hugging Face's DINOv3. Names are from the published codes, checked with random weights
against transformers' model in tests/models/test_eomt_checkpoints.py. Files of PMT (tue-mps/pmt)
have no backbone; checked against its model in tests/models/test_pmt.py.
"""

from __future__ import annotations

from ..keys import KeyTable

HF_KEYS: KeyTable = {
    r'(embeddings\..+)': r'backbone.\1',
    r'layers\.(\d+\..+)': r'backbone.layer.\1',
    r'layernorm\.(.+)': r'backbone.norm.\1',
    r'query\.weight': 'query.weight',
    r'class_predictor\.(.+)': r'class_head.\1',
    r'mask_head\.fc1\.(.+)': r'mask_head.0.\1',
    r'mask_head\.fc2\.(.+)': r'mask_head.2.\1',
    r'mask_head\.fc3\.(.+)': r'mask_head.4.\1',
    r'upscale_block\.block\.(\d+)\.conv1\.(.+)': r'upscale.\1.0.\2',
    r'upscale_block\.block\.(\d+)\.conv2\.(.+)': r'upscale.\1.2.\2',
    r'upscale_block\.block\.(\d+)\.layernorm2d\.(.+)': r'upscale.\1.3.\2',
    r'attn_mask_probs': None,  # of the training so far
    r'criterion\.empty_weight': None,  # class weights of the loss
}
AUTHORS_KEYS: KeyTable = {
    r'network\.encoder\.backbone\.patch_embed\.(.+)': r'backbone.embeddings.\1',
    r'network\.encoder\.backbone\.blocks\.(\d+\..+)': r'backbone.layer.\1',
    r'network\.encoder\.backbone\.norm\.(.+)': r'backbone.norm.\1',
    r'network\.encoder\.pixel_(mean|std)': None,  # of the data preprocessor
    r'network\.q\.weight': 'query.weight',
    r'network\.class_head\.(.+)': r'class_head.\1',
    r'network\.mask_head\.(\d\..+)': r'mask_head.\1',
    r'network\.upscale\.(\d+)\.conv1\.(.+)': r'upscale.\1.0.\2',
    r'network\.upscale\.(\d+)\.conv2\.(.+)': r'upscale.\1.2.\2',
    r'network\.upscale\.(\d+)\.norm\.(.+)': r'upscale.\1.3.\2',
    r'network\.attn_mask_probs': None,
    r'criterion\.empty_weight': None,
}
PMT_KEYS: KeyTable = {
    r'network\.bn\.(\d+)\.(.+)': r'laterals.\1.norm.\2',
    r'network\.decoder\.lateral_projections\.(\d+)\.(.+)': r'laterals.\1.mlp.\2',
    r'network\.decoder\.scalers\.(\d+)': r'laterals.\1.scale',
    r'network\.decoder\.q\.weight': 'query.weight',
    r'network\.decoder\.blocks\.(\d+)\.attention\.{q,k,v}_proj\.weight': (
        r'blocks.\1.attn.qkv.weight'
    ),
    r'network\.decoder\.blocks\.(\d+)\.attention\.([qv])_proj\.bias': (
        r'blocks.\1.attn.qkv.\2_bias'
    ),
    r'network\.decoder\.blocks\.(\d+)\.attention\.o_proj\.(.+)': r'blocks.\1.attn.proj.\2',
    r'network\.decoder\.blocks\.(\d+)\.layer_scale(\d)\.lambda1': r'blocks.\1.gamma_\2',
    r'network\.decoder\.blocks\.(\d+)\.mlp\.up_proj\.(.+)': r'blocks.\1.mlp.fc1.\2',
    r'network\.decoder\.blocks\.(\d+)\.mlp\.down_proj\.(.+)': r'blocks.\1.mlp.fc2.\2',
    r'network\.decoder\.blocks\.(\d+)\.(norm\d)\.(.+)': r'blocks.\1.\2.\3',
    r'network\.decoder\.decoder_norm\.(.+)': r'norm.\1',
    r'network\.decoder\.class_head\.(.+)': r'class_head.\1',
    r'network\.decoder\.mask_head\.(\d\..+)': r'mask_head.\1',
    r'network\.decoder\.upscale\.(\d+)\.conv1\.(.+)': r'upscale.\1.0.\2',
    r'network\.decoder\.upscale\.(\d+)\.conv2\.(.+)': r'upscale.\1.2.\2',
    r'network\.decoder\.upscale\.(\d+)\.norm\.(.+)': r'upscale.\1.3.\2',
    r'network\.encoder\.pixel_(mean|std)': None,  # of the data preprocessor
    r'network\.decoder\.attn_mask_probs': None,
    r'network\._attn_mask_probs_fallback': None,
    r'criterion\.empty_weight': None,
}
