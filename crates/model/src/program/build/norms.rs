//! Norms of rows, and the end of a block.

use super::builder::Builder;
use crate::program::node::{Node, RmsNorm};
use crate::program::tensors::TensorSpec;
use crate::program::{Factor, RowsId, VectorId};
use crate::spec::NormKind;

/// The weights of a norm of rows.
#[derive(Clone, Copy)]
pub(super) enum NormVectors {
    Rms { weight: VectorId },
    Layer { weight: VectorId, bias: VectorId },
}

impl Builder<'_> {
    /// The weights of a norm, whose tensors start with this name.
    pub(super) fn norm_vectors(&mut self, name: &str) -> NormVectors {
        self.norm_vectors_of(self.spec.norm, name)
    }

    /// The same of a norm of this kind.
    pub(super) fn norm_vectors_of(&mut self, kind: NormKind, name: &str) -> NormVectors {
        let hidden = self.spec.hidden;
        let tensor = |part: &str| TensorSpec::new(format!("{name}.{part}"), &[hidden]);
        // llama.cpp's converter writes a norm of Falcon-H1 without a suffix.
        let bare = self.contains(name).then(|| TensorSpec::new(name, &[hidden]));
        let weight = self.vector(bare.unwrap_or_else(|| tensor("weight")));
        match kind {
            NormKind::Rms => NormVectors::Rms { weight },
            NormKind::Layer => NormVectors::Layer { weight, bias: self.vector(tensor("bias")) },
            NormKind::LayerUnbiased => NormVectors::Layer { weight, bias: self.repeated(&[0.0], hidden) },
        }
    }

    /// The weights of the norm that follows a block, if the model has such norms.
    pub(super) fn post_norm(&mut self, name: &str) -> Option<NormVectors> {
        self.spec.post_norms.then(|| self.norm_vectors(name))
    }

    /// norm(x).
    pub(super) fn normalise(&mut self, norm: NormVectors, x: RowsId) -> RowsId {
        let out = self.new_rows(self.cols(x), "the residual stream");
        self.push(match norm {
            NormVectors::Rms { weight } => Node::RmsNorm(RmsNorm { x, weight, out }),
            NormVectors::Layer { weight, bias } => Node::LayerNorm { x, weight, bias, eps: self.spec.norm_eps, out },
        });
        out
    }

    /// residual = factor · (residual + scale · norm(output)), if a norm follows the block. Without a norm, the block's
    /// last product has been added to the residual stream, and residual = factor · residual.
    pub(super) fn finish_block(&mut self, output: RowsId, norm: Option<NormVectors>, factor: Factor) {
        if let Some(norm) = norm {
            let x = match (norm, self.spec.post_norm_eps) {
                (NormVectors::Rms { weight }, Some(eps)) => {
                    self.push(Node::QkNorm { x: self.all(output), weight, eps });
                    output
                }
                _ => self.normalise(norm, output),
            };
            self.push(Node::Add { x, scale: self.spec.residual_scale, y: self.residual });
        }
        self.scale(factor, self.residual);
    }
}
