//! Arrays of floats for numpy.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A matrix of 32-bit floats, which `numpy.asarray` reads without a copy.
#[pyclass(frozen, module = "gristmill._native")]
pub(crate) struct Floats {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
}

impl Floats {
    /// Rows of equal length, one after another.
    pub(crate) fn new(values: Vec<f32>, rows: usize) -> Floats {
        let columns = values.len().checked_div(rows).unwrap_or(0);
        Floats { values, rows, columns }
    }
}

#[pymethods]
impl Floats {
    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// The rows as lists.
    fn tolist(&self) -> Vec<Vec<f32>> {
        self.values.chunks(self.columns.max(1)).map(<[f32]>::to_vec).collect()
    }

    /// Numpy's array interface, version 3. An array keeps this object, so the values live as long as it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.rows, self.columns))?;
        interface.set_item("typestr", if cfg!(target_endian = "little") { "<f4" } else { ">f4" })?;
        // Read-only: nothing guards the values against two writers.
        interface.set_item("data", (self.values.as_ptr() as usize, true))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}
